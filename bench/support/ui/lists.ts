/** Long lists in the browser: 5,000 hosts and 50,000 names of secrets, until the list is painted, filtered and scrolled. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { BenchBrowser, BenchPage, MeasuredFrames } from '../browser.ts'
import { CoreServer } from '../core.ts'
import { type Options, plainNumber, type Row, WrongContent } from '../figure.ts'
import type { Filled, Order } from '../fleet.ts'
import { load } from '../load.ts'
import { inTurn, median, percentile } from '../measure.ts'
import type { EmptyPage } from './empty-page.ts'

const LIMIT_MS = 50
const USABLE_LIMIT_MS = 300
const FOLDER = 'many'
const TYPING_MS = 80
/** After the last key, for filters that wait. */
const SETTLE_MS = 1000
const WHOLE_MS_MAX = 30_000
const FIRST_ROW = '[role=table] a'
const BODY = '.table-body'

export interface ListParts {
  readonly browser: BenchBrowser
  readonly empty: EmptyPage
  readonly rest: MeasuredFrames
}

interface LongList {
  readonly name: string
  readonly count: number
  readonly url: string
  readonly token?: string
  /** Typed into the search field. */
  readonly filter: string
  /** Rows that match it. */
  readonly matches: number
  /** What the page reads, for the peer. */
  readonly json: Buffer
}

export async function longLists(parts: ListParts, options: Options): Promise<Row[]> {
  return [...(await hostRows(parts, options)), ...(await secretRows(parts, options))]
}

async function hostRows(parts: ListParts, options: Options): Promise<Row[]> {
  const nodes = options.quick ? 500 : 5000
  const child = fork(join(import.meta.dirname, '../fleet.ts'), { execArgv: ['--expose-gc'] })
  try {
    const { port } = await filled(child, { kind: 'fill', nodes, allocationsEach: 2 })
    const url = `http://127.0.0.1:${port}`
    const json = Buffer.from(await (await fetch(`${url}/v1/nodes`)).arrayBuffer())
    const filter = `host-${nodes - 1}`
    return await rowsOf(
      parts,
      { name: 'hosts', count: nodes, url: `${url}/ui/hosts`, filter, matches: 1, json },
      options,
    )
  } finally {
    child.disconnect()
  }
}

async function filled(child: ChildProcess, order: Order): Promise<Filled> {
  child.send(order)
  const [answer] = (await once(child, 'message')) as [Filled]
  return answer
}

const nameOf = (at: number) => `secret-${String(at).padStart(5, '0')}`

async function secretRows(parts: ListParts, options: Options): Promise<Row[]> {
  const count = options.quick ? 2000 : 50_000
  const core = new CoreServer()
  try {
    await core.start()
    await core.initialise()
    await writeSecrets(core, count)
    const { body } = await core.ask('GET', `secret/metadata/${FOLDER}?list=true`)
    return await rowsOf(
      parts,
      {
        name: 'names of secrets',
        count,
        url: `http://127.0.0.1:${core.port}/ui/secrets/secret/${FOLDER}/`,
        token: core.token,
        filter: nameOf(count - 1),
        matches: 1,
        json: Buffer.from(body),
      },
      options,
    )
  } finally {
    await core.remove()
  }
}

const fault = (status: number) => (status === 200 ? undefined : `status ${status}`)

async function writeSecrets(core: CoreServer, count: number): Promise<void> {
  let at = 0
  await load({
    port: core.port,
    pid: core.pid,
    durationMs: Infinity,
    connections: 64,
    next: () => {
      const current = at++
      if (current >= count) return undefined
      return core.request('POST', `secret/data/${FOLDER}/${nameOf(current)}`, fault, `{"data":{"v":"${current}"}}`)
    },
  })
}

const ROW_COUNT = `Number(document.querySelector('[role=table]')?.getAttribute('aria-rowcount') ?? 0) - 1`

/** A page with all rows; a long list may show its beginning earlier. */
async function openList(
  browser: BenchBrowser,
  { count, name, token, url }: LongList,
): Promise<{ readonly page: BenchPage; readonly usableMs: number; readonly wholeMs: number }> {
  const page = await browser.page({ loaded: FIRST_ROW, ...(token !== undefined && { token }) })
  const usableMs = await page.open(url)
  const isWhole = `bench.until(() => ${ROW_COUNT} === ${count}, ${WHOLE_MS_MAX})`
  const wholeMs = Number(await page.evaluate(isWhole))
  if (wholeMs < 0) throw new WrongContent(`${name}: ${String(await page.evaluate(ROW_COUNT))} rows`)
  return { page, usableMs, wholeMs }
}

async function rowsOf({ browser, empty, rest }: ListParts, list: LongList, options: Options): Promise<Row[]> {
  // A checkout builds the files at the first request.
  await (await fetch(new URL('/ui/', list.url))).arrayBuffer()
  const usable: number[] = []
  const whole: number[] = []
  const readByPeer: number[] = []
  await inTurn(options.quick ? 1 : options.rounds, [
    async () => {
      const page = await openList(browser, list)
      usable.push(page.usableMs)
      whole.push(page.wholeMs)
      await page.page.close()
    },
    async () => void readByPeer.push(await empty.readMs(list.json)),
  ])
  const { page } = await openList(browser, list)
  try {
    const rowCount = async () => Number(await page.evaluate(ROW_COUNT))
    const scrolled = await page.frames(`bench.scroll('${BODY}', 300, 100)`, browser)
    await page.page.keyboard.press('/')
    const end = await page.watchFrames(browser)
    await page.page.keyboard.type(list.filter, { delay: TYPING_MS })
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS))
    const filtered = await end()
    if ((await rowCount()) !== list.matches) {
      throw new WrongContent(`${list.name}, filter "${list.filter}": ${await rowCount()} rows`)
    }
    if (page.errors.length > 0) throw new WrongContent(`${list.name}: ${page.errors.join('; ')}`)
    const what = `${list.count.toLocaleString('en')} ${list.name}`
    const peer = { name: 'idle page', runs: [Math.max(...rest.intervals)] }
    const frames = (name: string, { cpuMsPerFrame, intervals, work }: MeasuredFrames): Row => ({
      figure: `${what}, ${name}: longest frame`,
      unit: 'ms',
      ours: [Math.max(...intervals)],
      peer,
      cpu: { unit: 'ms/frame', ours: [cpuMsPerFrame], peer: [rest.cpuMsPerFrame] },
      note: `at most ${LIMIT_MS}; work p95 ${plainNumber(percentile(work, 0.95))}`,
    })
    return [
      {
        figure: `${what}, cold load to rows that can be used`,
        unit: 'ms',
        ours: usable,
        peer: { name: 'empty page that reads them, bare node:http', runs: readByPeer },
        note: `at most ${USABLE_LIMIT_MS}; all rows after ${plainNumber(median(whole))}`,
      },
      frames('filter', filtered),
      frames('scroll', scrolled),
    ]
  } finally {
    await page.close()
  }
}
