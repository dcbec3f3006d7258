/** How much a browser downloads for a view, and when the view can be used. */
import { build } from '../../../scripts/ui-bundle.ts'
import type { RunningAgent } from '../agent.ts'
import { ALLOC_ID, TASK } from '../agent.ts'
import type { BenchBrowser } from '../browser.ts'
import { type Options, plainNumber, type Row, WrongContent } from '../figure.ts'
import { inTurn } from '../measure.ts'
import type { EmptyPage } from './empty-page.ts'

const KB = 1000
const LIMIT_KB = 90
const LIMIT_MS = 300
const LIST = '/ui/logs'
const FIRST_ROW = '[role=table] a'
/** For what a view loads after its content. */
const SETTLE_MS = 500
/** Compression of a release; a checkout compresses less at the first request. */
const BEST = 11

export interface LoadParts {
  readonly agent: RunningAgent
  readonly browser: BenchBrowser
  readonly empty: EmptyPage
}

export async function firstLoad(parts: LoadParts, options: Options): Promise<Row[]> {
  // Builds the files, and warms the browser.
  await loadOnce(parts, LIST, FIRST_ROW)
  const [ours, peer]: [number[], number[]] = [[], []]
  const kilobytes: number[] = []
  await inTurn(options.quick ? 2 : Math.max(options.rounds, 5), [
    async () => {
      const { loadedMs, transfers } = await loadOnce(parts, LIST, FIRST_ROW)
      ours.push(loadedMs)
      kilobytes.push(sumOf(transfers) / KB)
    },
    async () => void peer.push(await parts.empty.loadMs()),
  ])
  return [
    {
      figure: 'web interface, cold load to a list of logs that can be used',
      unit: 'ms',
      ours,
      peer: { name: 'empty page, bare node:http', runs: peer },
      note: `at most ${LIMIT_MS}`,
    },
    { figure: 'downloaded for it, files and data', unit: 'KB', ours: kilobytes, note: `at most ${LIMIT_KB}` },
    await largestView(parts),
  ]
}

interface Loaded {
  readonly loadedMs: number
  readonly transfers: readonly Transferred[]
}

interface Transferred {
  readonly path: string
  readonly bytes: number
}

const sumOf = (transfers: readonly { readonly bytes: number }[]) => transfers.reduce((sum, { bytes }) => sum + bytes, 0)

async function loadOnce({ agent, browser }: LoadParts, path: string, loaded: string): Promise<Loaded> {
  const page = await browser.page({ loaded })
  try {
    const loadedMs = await page.open(`http://127.0.0.1:${agent.port}${path}`)
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS))
    if (page.errors.length > 0) throw new WrongContent(`${path}: ${page.errors.join('; ')}`)
    return { loadedMs, transfers: [...page.transfers] }
  } finally {
    await page.close()
  }
}

/** Of the views that a host without secrets has; those of secrets are smaller than the tail of a log. */
async function largestView(parts: LoadParts): Promise<Row> {
  const release = new Map(
    (await build(BEST)).map(({ brotli, bytes, path }) => [`/ui/${path}`, (brotli ?? bytes).length]),
  )
  const views = [
    LIST,
    `${LIST}/${ALLOC_ID}/${TASK}`,
    `${LIST}/wall`,
    '/ui/hosts',
    `/ui/files/${ALLOC_ID}`,
    '/ui/status',
  ]
  const sizes: { path: string; now: number; released: number }[] = []
  for (const path of views) {
    const { transfers } = await loadOnce(parts, path, 'h1')
    const files = transfers.filter((each) => each.path.startsWith('/ui/'))
    const released = files.reduce((sum, each) => sum + (release.get(each.path) ?? each.bytes), 0)
    sizes.push({ path, now: sumOf(files) / KB, released: released / KB })
  }
  const [largest] = sizes.toSorted((one, other) => other.now - one.now)
  if (largest === undefined) throw new WrongContent('no view was loaded')
  const name = largest.path.replace(ALLOC_ID, 'ALLOC').replace(TASK, 'TASK')
  return {
    figure: `files of the largest of ${views.length} views, ${name}`,
    unit: 'KB',
    ours: [largest.now],
    note: `at most ${LIMIT_KB}; ${plainNumber(largest.released)} as a release compresses them`,
  }
}
