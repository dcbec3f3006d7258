/**
 * Finding the start of a log: the last 1,000 lines of 10 GiB, compared with `tail`; and the lines since a time, in 10 MB that are
 * read and in a large file that is bisected, compared with an awk that compares the first field of each line.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, writeSync } from 'node:fs'
import { buffer } from 'node:stream/consumers'
import { logsPath, type RunningAgent, startAgent } from './support/agent.ts'
import { line, MiB } from './support/content.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { fetchWhole } from './support/http-socket.ts'
import { inTurn, nowMs } from './support/measure.ts'

const SPARSE_BYTES = 10 * 1024 * MiB
const LINES = 1000
const START_MS = Date.UTC(2026, 0, 1)

export async function tailLines(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  try {
    const rows = [await lastLines(agent, options)]
    rows.push(await sinceTime(agent, options, 10_000_000, 'read'))
    rows.push(await sinceTime(agent, options, (options.quick ? 64 : 1024) * MiB, 'bisected'))
    return rows
  } finally {
    await agent.stop()
  }
}

/** The part before the lines is a hole. */
async function lastLines(agent: RunningAgent, options: Options): Promise<Row> {
  const file = agent.site.logFile(0)
  const lines = Array.from({ length: 50 * LINES }, (_, number) => line(number))
  write(file, SPARSE_BYTES, [Buffer.concat(lines)])
  const expected = Buffer.concat(lines.slice(-LINES))
  const [ours, theirs]: [number[], number[]] = [[], []]
  await inTurn(options.quick ? 5 : 31, [
    async () => void ours.push(await asked(agent, `tail_lines=${LINES}`, expected)),
    async () => void theirs.push(await run('tail', ['-n', String(LINES), file], expected)),
  ])
  const figure = `tail_lines=${LINES} of 10 GiB, connect to last byte`
  return { figure, unit: 'ms', ours, peer: { name: 'tail -n, start to end', runs: theirs } }
}

const stamped = (number: number) =>
  `${new Date(START_MS + number * 10).toISOString()} line ${number} ${'.'.repeat(number % 100)}\n`

async function sinceTime(agent: RunningAgent, options: Options, bytes: number, how: 'read' | 'bisected'): Promise<Row> {
  const file = agent.site.logFile(0)
  let [count, size] = [0, 0]
  function* blocks() {
    while (size < bytes) {
      const text = Array.from({ length: 1000 }, () => stamped(count++)).join('')
      size += text.length
      yield Buffer.from(text)
    }
  }
  write(file, 0, blocks())
  const first = count - LINES
  const time = stamped(first).slice(0, 24)
  const expected = Buffer.from(Array.from({ length: LINES }, (_, at) => stamped(first + at)).join(''))
  const [ours, theirs]: [number[], number[]] = [[], []]
  await inTurn(Math.min(options.rounds, how === 'read' ? 7 : 3), [
    async () => void ours.push(await asked(agent, `since=${time}`, expected)),
    async () => void theirs.push(await run('awk', ['-v', `t=${time}`, '$1 >= t', file], expected)),
  ])
  const figure = `since= in ${how === 'read' ? '10 MB' : `${bytes / MiB} MiB`} of stamped lines (${how})`
  return { figure, unit: 'ms', ours, peer: { name: 'awk on the host', runs: theirs } }
}

/** Rewrites a file. It is `size` bytes long if that is more than the parts. */
function write(file: string, size: number, parts: Iterable<Buffer>): void {
  const fd = openSync(file, 'w')
  let at = -1
  for (const part of parts) {
    if (at < 0) at = Math.max(size - part.length, 0)
    at += writeSync(fd, part, 0, part.length, at)
  }
  closeSync(fd)
}

async function asked(agent: RunningAgent, query: string, expected: Buffer): Promise<number> {
  const beganMs = nowMs()
  const { body } = await fetchWhole(agent.port, `${logsPath({ framed: false, follow: false })}&${query}`)
  const tookMs = nowMs() - beganMs
  if (!body.equals(expected)) throw new WrongContent(`${query}: ${body.length} bytes instead of ${expected.length}`)
  return tookMs
}

async function run(command: string, args: readonly string[], expected: Buffer): Promise<number> {
  const beganMs = nowMs()
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const [output] = await Promise.all([buffer(child.stdout), once(child, 'exit')])
  const tookMs = nowMs() - beganMs
  if (!output.equals(expected)) throw new WrongContent(`${command}: ${output.length} bytes`)
  return tookMs
}

if (import.meta.main) await alone(tailLines)
