/**
 * Searching and resuming over HTTP, as for a caller: `grep=` of a log of 1 GiB, compared with GNU grep on the same
 * file; latency of a line to a follower of another log meanwhile; `tail_lines=1000` of a file of 10 GiB, compared with
 * `tail`; and time to the first bytes of a stream that resumes by cursor, compared with one that starts at an offset.
 */
import { closeSync, openSync, statSync, truncateSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { lineLatencies, type Writer } from './follow-latency.ts'
import { ASKS, gnuGrep, writeLog } from './grep.ts'
import { ALLOC_ID, FS, logsPath, type RunningAgent, startAgent, TASK } from './support/agent.ts'
import { Helper, start } from './support/child.ts'
import { line, MiB } from './support/content.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { inTurn, nowMs, percentile } from './support/measure.ts'

const GREPPED = [
  'literal, one line in 160,000',
  'literal, every line',
  'pattern with a literal in it, rare',
  'pattern without a literal, rare',
]
const TAIL_LINES = 1000

interface Got {
  readonly body: Buffer
  readonly firstByteMs: number
  readonly totalMs: number
  readonly headers: Headers
}

async function get(agent: RunningAgent, path: string): Promise<Got> {
  const startMs = nowMs()
  const response = await fetch(`http://127.0.0.1:${agent.port}${path}`)
  if (response.status !== 200 || !response.body) throw new WrongContent(`${path}: ${response.status}`)
  const parts: Uint8Array[] = []
  let firstByteMs = Number.NaN
  for await (const part of response.body) {
    if (parts.length === 0) firstByteMs = nowMs() - startMs
    parts.push(part)
  }
  return { body: Buffer.concat(parts), firstByteMs, totalMs: nowMs() - startMs, headers: response.headers }
}

const searchPath = (pattern: string) =>
  `${logsPath({ framed: false, follow: false })}&grep=${encodeURIComponent(pattern)}`

function countNewlines(bytes: Buffer): number {
  let count = 0
  for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) count++
  return count
}

async function searched(agent: RunningAgent, options: Options): Promise<Row[]> {
  agent.site.removeLogs()
  const file = agent.site.logFile(0)
  writeLog(file, (options.quick ? 64 : 1024) * MiB)
  const { size } = statSync(file)
  const rows: Row[] = []
  for (const ask of ASKS.filter(({ figure }) => GREPPED.includes(figure))) {
    const [ours, peer]: [number[], number[]] = [[], []]
    const wanted = (await gnuGrep(file, ask.grep)).lines
    await inTurn(Math.min(options.rounds, 3), [
      async () => {
        const { body, totalMs } = await get(agent, searchPath(ask.pattern))
        const lines = countNewlines(body)
        if (lines !== wanted) throw new WrongContent(`search, ${ask.figure}: ${lines} lines, grep counts ${wanted}`)
        ours.push(size / 1e3 / totalMs)
      },
      async () => void peer.push((await gnuGrep(file, ask.grep)).megabytesPerSecond),
    ])
    rows.push({ figure: `search over HTTP, ${ask.figure}`, unit: 'MB/s', ours, peer: { name: 'GNU grep', runs: peer } })
  }
  return [...rows, ...(await besides(agent, options))]
}

/** A tail of the other output, with and without a search that repeats meanwhile. */
async function besides(agent: RunningAgent, options: Options): Promise<Row[]> {
  const writer: Writer = new Helper('writer')
  const file = agent.site.logFile(0).replace('.stdout.', '.stderr.')
  const path = logsPath({ framed: true, follow: true }).replace('type=stdout', 'type=stderr')
  const count = options.quick ? 100 : 500
  const once = async (): Promise<number[]> => {
    writeFileSync(file, line(0))
    return lineLatencies(writer, { file, count, first: 1 }, { port: agent.port, path, framed: true })
  }
  try {
    const rows: Row[] = []
    for (const ask of ASKS.filter(({ figure }) => figure === GREPPED[0] || figure === GREPPED[3])) {
      const quiet = await once()
      const beside = { isOver: false }
      const searching = (async () => {
        while (!beside.isOver) await get(agent, searchPath(ask.pattern))
      })()
      const busy = await once()
      beside.isOver = true
      await searching
      for (const part of [0.5, 0.99]) {
        rows.push({
          figure: `tail during a search (${ask.figure}), p${part * 100}`,
          unit: 'ms',
          ours: [percentile(busy, part)],
          peer: { name: 'alone', runs: [percentile(quiet, part)] },
        })
      }
    }
    return rows
  } finally {
    await writer.stop()
  }
}

async function tailed(agent: RunningAgent, options: Options): Promise<Row> {
  const file = join(agent.site.allocation, 'alloc/data/huge')
  const text = Buffer.concat(Array.from({ length: 20_000 }, (_, number) => line(number)))
  writeFileSync(file, '')
  truncateSync(file, 10 * 1024 * MiB)
  const fd = openSync(file, 'r+')
  writeSync(fd, text, 0, text.length, 10 * 1024 * MiB)
  closeSync(fd)
  const wanted = text.subarray(-TAIL_LINES * line(0).length)
  const path = `${FS}/stream/${ALLOC_ID}?path=alloc/data/huge&follow=false&tail_lines=${TAIL_LINES}`
  const [ours, peer]: [number[], number[]] = [[], []]
  await inTurn(options.quick ? 3 : 21, [
    async () => {
      const { body, totalMs } = await get(agent, path)
      const frames = body.toString().replaceAll('}{', '}\n{').split('\n')
      const parts = frames.map((frame) => Buffer.from((JSON.parse(frame) as { Data?: string }).Data ?? '', 'base64'))
      if (!Buffer.concat(parts).equals(wanted)) throw new WrongContent('tail_lines: not the last lines')
      ours.push(totalMs)
    },
    async () => {
      const startMs = nowMs()
      const child = start('tail', ['-n', String(TAIL_LINES), file])
      const said = child.stdout ? await buffer(child.stdout) : Buffer.alloc(0)
      if (!said.equals(wanted)) throw new WrongContent('tail returns other bytes')
      peer.push(nowMs() - startMs)
    },
  ])
  return {
    figure: `tail_lines=${TAIL_LINES} of 10 GiB`,
    unit: 'ms',
    ours,
    peer: { name: 'tail, including its start', runs: peer },
  }
}

async function resumed(agent: RunningAgent, options: Options): Promise<Row> {
  agent.site.removeLogs()
  for (let index = 0; index < 10; index++) {
    writeFileSync(agent.site.logFile(index), Buffer.concat(Array.from({ length: 10_000 }, (_, number) => line(number))))
  }
  const base = `${FS}/logs/${ALLOC_ID}?task=${TASK}&type=stdout&follow=false`
  const offset = 3_512_345
  const first = await get(agent, `${base}&plain=true&cursor=&offset=${offset}`)
  const place = first.headers.get('x-outpost-cursor')
  if (place === null) throw new WrongContent('no cursor')
  const [ours, peer]: [number[], number[]] = [[], []]
  await inTurn(options.quick ? 3 : 51, [
    async () => {
      const { body, firstByteMs } = await get(agent, `${base}&plain=true&cursor=${place}`)
      if (!body.equals(first.body)) throw new WrongContent('cursor: not the expected bytes')
      ours.push(firstByteMs)
    },
    async () => void peer.push((await get(agent, `${base}&plain=true&offset=${offset}`)).firstByteMs),
  ])
  return { figure: 'resuming by cursor, to the first byte', unit: 'ms', ours, peer: { name: 'by offset', runs: peer } }
}

export async function search(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  try {
    return [...(await searched(agent, options)), await tailed(agent, options), await resumed(agent, options)]
  } finally {
    await agent.stop()
  }
}

if (import.meta.main) await alone(search)
