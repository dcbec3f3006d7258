/**
 * Searching the lines of a log: outpost's filter, fed as by a stream, compared with GNU grep on the same file
 * and with only reading that file. Every count is compared with that of grep.
 *
 * This is the filter alone, in this process with its threads, so that the network does not hide its cost.
 */
import { closeSync, openSync, statSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { LineFilter } from '../src/host/logs/search/line-filter.ts'
import { compileLinePattern } from '../src/host/logs/search/line-pattern.ts'
import { countLines } from '../src/host/logs/search/line-selection.ts'
import { readAt } from '../src/host/files/read.ts'
import { removeDirectory, start, temporaryDirectory } from './support/child.ts'
import { MiB } from './support/content.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { inTurn, nowMs } from './support/measure.ts'

const CHUNK_BYTES = 512 * 1024
const BLOCK_BYTES = 16 * MiB

interface Ask {
  readonly figure: string
  readonly pattern: string
  /** The same for grep. */
  readonly grep: readonly string[]
}

/** The searches of this benchmark, also over HTTP in `search.ts`. */
export const ASKS: readonly Ask[] = [
  { figure: 'literal, one line in 160,000', pattern: 'out of memory', grep: ['-F', 'out of memory'] },
  { figure: 'literal, one line in 13', pattern: 'user=alice', grep: ['-F', 'user=alice'] },
  { figure: 'literal, every line', pattern: 'Z level=', grep: ['-F', 'Z level='] },
  {
    figure: 'pattern with a literal in it, rare',
    pattern: 'out of (memory|disk)',
    grep: ['-E', 'out of (memory|disk)'],
  },
  {
    figure: 'pattern without a literal, rare',
    pattern: '[0-9]{5,}ms|[A-Z]{5,}',
    grep: ['-E', '[0-9]{5,}ms|[A-Z]{5,}'],
  },
  { figure: 'pattern, any case, rare', pattern: '(?i)OUT OF MEM', grep: ['-i', '-E', 'OUT OF MEM'] },
  { figure: 'pattern, one line in 13', pattern: 'user=a[a-z]+', grep: ['-E', 'user=a[a-z]+'] },
  { figure: 'pattern, every line', pattern: '^2026-[0-9]{2}-', grep: ['-E', '^2026-[0-9]{2}-'] },
]

const USERS = 'alice bob carol dave erin frank grace heidi ivan judy mallory niaj olivia'.split(' ')
const DID = [
  'handled GET /api/v1/items',
  'cache miss for shard-7',
  'queued job, trace=abcdef0123456789',
  'handled POST /login',
]

/** Lines of about 100 bytes; one line per block has "out of memory". */
function blockOfLines(): Buffer {
  const lines: string[] = []
  let bytes = 0
  for (let count = 0; ; count++) {
    const at = String(count % 60).padStart(2, '0')
    const rare = count === 50_000 ? ' out of memory' : ''
    const said = `level=info ${DID[(count * 7) % DID.length]} user=${USERS[count % USERS.length]} status=200 in ${count % 9999}ms`
    const line = `2026-11-21T10:00:${at}Z ${said}${rare}\n`
    if (bytes + line.length > BLOCK_BYTES) return Buffer.from(lines.join(''))
    lines.push(line)
    bytes += line.length
  }
}

/** A log of whole blocks of such lines. */
export function writeLog(path: string, bytes: number): void {
  const block = blockOfLines()
  const fd = openSync(path, 'w')
  for (let written = 0; written < bytes; written += block.length) writeSync(fd, block)
  closeSync(fd)
}

export interface Counted {
  readonly lines: number
  readonly megabytesPerSecond: number
}

const rate = (bytes: number, sinceMs: number) => bytes / 1e3 / (nowMs() - sinceMs)

/** Feeds the output of `chunk` to a filter and counts the resulting lines. */
async function feed(pattern: string, bytes: number, chunk: (at: number) => Buffer | Promise<Buffer>): Promise<Counted> {
  const filter = new LineFilter<string>({ pattern: compileLinePattern(pattern), invert: false, context: 0 })
  const startMs = nowMs()
  let lines = 0
  let countingMs = 0
  for (let at = 0; at < bytes; ) {
    const data = await chunk(at)
    const pushed = filter.push(data, 'log', at)
    const runs = pushed instanceof Promise ? await pushed : pushed
    at += data.length
    // The output is counted by the benchmark, not by the filter.
    const beforeMs = nowMs()
    for (const run of runs) lines += countLines(run.bytes, 0, run.bytes.length)
    countingMs += nowMs() - beforeMs
  }
  filter.close()
  return { lines, megabytesPerSecond: rate(bytes, startMs + countingMs) }
}

async function fromFile(path: string, pattern: string): Promise<Counted> {
  const fd = openSync(path, 'r')
  const buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES)
  try {
    return await feed(pattern, statSync(path).size, async (at) => {
      return buffer.subarray(0, await readAt(fd, buffer, 0, CHUNK_BYTES, at))
    })
  } finally {
    closeSync(fd)
  }
}

/** Only the filter: the chunks are already in memory. */
function fromMemory(pattern: string, bytes: number, block: Buffer): Promise<Counted> {
  const chunks = Array.from({ length: Math.ceil(block.length / CHUNK_BYTES) }, (_, index) =>
    block.subarray(index * CHUNK_BYTES, (index + 1) * CHUNK_BYTES),
  )
  let next = 0
  const whole = Math.ceil(bytes / block.length) * block.length
  return feed(pattern, whole, () => chunks[next++ % chunks.length] ?? block)
}

async function readOnly(path: string): Promise<number> {
  const { size } = statSync(path)
  const fd = openSync(path, 'r')
  const buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES)
  const startMs = nowMs()
  for (let at = 0; at < size; ) at += await readAt(fd, buffer, 0, CHUNK_BYTES, at)
  closeSync(fd)
  return rate(size, startMs)
}

export async function gnuGrep(path: string, args: readonly string[]): Promise<Counted> {
  const startMs = nowMs()
  const child = start('grep', ['-c', ...args, path], { ...process.env, LC_ALL: 'C' })
  const said = child.stdout ? await text(child.stdout) : ''
  return { lines: Number(said), megabytesPerSecond: rate(statSync(path).size, startMs) }
}

export async function grep(options: Options): Promise<Row[]> {
  const directory = temporaryDirectory()
  const path = join(directory, 'log')
  writeLog(path, (options.quick ? 64 : 1024) * MiB)
  const block = blockOfLines()
  const rows: Row[] = []
  try {
    for (const ask of ASKS) rows.push(...(await measure(ask, path, block, options.rounds)))
    rows.push(await oneLineAtATime(options))
    return rows
  } finally {
    removeDirectory(directory)
  }
}

async function measure(ask: Ask, path: string, block: Buffer, rounds: number): Promise<Row[]> {
  const { size } = statSync(path)
  const runs = { file: [] as number[], memory: [] as number[], grep: [] as number[], read: [] as number[] }
  const wanted = (await gnuGrep(path, ask.grep)).lines
  const check = (from: string, { lines, megabytesPerSecond }: Counted, into: number[]) => {
    if (lines !== wanted) throw new WrongContent(`grep, ${ask.figure}, ${from}: ${lines} lines, grep counts ${wanted}`)
    into.push(megabytesPerSecond)
  }
  await inTurn(rounds, [
    async () => check('from the file', await fromFile(path, ask.pattern), runs.file),
    async () => check('from memory', await fromMemory(ask.pattern, size, block), runs.memory),
    async () => check('by grep', await gnuGrep(path, ask.grep), runs.grep),
    async () => void runs.read.push(await readOnly(path)),
  ])
  const figure = `grep, ${ask.figure}`
  return [
    { figure, unit: 'MB/s', ours: runs.file, peer: { name: 'GNU grep', runs: runs.grep } },
    { figure: `${figure}, from memory`, unit: 'MB/s', ours: runs.memory, peer: { name: 'read only', runs: runs.read } },
  ]
}

/** Cost of a follower that receives an occasional line and passes each to a thread. */
async function oneLineAtATime(options: Options): Promise<Row> {
  const line = Buffer.from('2026-11-21T10:00:00Z level=info handled GET /api/v1/items user=alice status=200 in 12ms\n')
  const times = options.quick ? 500 : 5000
  const filter = new LineFilter<string>({ pattern: compileLinePattern('user=a[a-z]+'), invert: false, context: 0 })
  const cpu: number[] = []
  const wall: number[] = []
  for (let round = 0; round <= options.rounds; round++) {
    const before = process.cpuUsage()
    const startMs = nowMs()
    for (let at = 0; at < times; at++) await filter.push(line, 'log', (round * times + at) * line.length)
    const used = process.cpuUsage(before)
    // The first round starts the thread.
    if (round === 0) continue
    wall.push(((nowMs() - startMs) * 1000) / times)
    cpu.push((used.user + used.system) / times)
  }
  filter.close()
  return {
    figure: 'grep, one line through a pattern',
    unit: 'us',
    ours: wall,
    cpu: { unit: 'us CPU per line', ours: cpu },
  }
}

if (import.meta.main) await alone(grep)
