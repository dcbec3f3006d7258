/**
 * How fast `outpost alloc run` writes the output of a command to rotated logs, compared with `cat > file` behind
 * the same pipe, and how soon a printed line is in the file.
 */
import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const OUTPOST = resolve(import.meta.dirname, '../bin/outpost')
const MEGABYTES = Number(process.env['BENCH_MB'] ?? 2000)
const ROUNDS = 3
const LATENCY_LINES = 200

const directory = mkdtempSync(join(tmpdir(), 'outpost-bench-'))
const env = { ...process.env, OUTPOST_DATA_DIR: directory }

function seconds(run: () => SpawnSyncReturns<Buffer>): number {
  const beganMs = performance.now()
  const { status, stderr } = run()
  if (status !== 0) throw new Error(`exit code ${status}: ${stderr.toString()}`)
  return (performance.now() - beganMs) / 1000
}

/** Megabytes per second, the best of a few rounds, because noise only slows a run down. */
function best(run: () => SpawnSyncReturns<Buffer>): number {
  const times = Array.from({ length: ROUNDS }, () => seconds(run))
  return MEGABYTES / Math.min(...times)
}

function supervised(producer: string): number {
  const mbPerSecond = best(() => spawnSync(OUTPOST, ['alloc', 'run', '--', 'sh', '-c', producer], { env }))
  rmSync(join(directory, 'alloc'), { recursive: true })
  return mbPerSecond
}

function line(name: string, value: number, unit: string, peer?: { name: string; value: number }): void {
  const ratio = peer ? `   ${(value / peer.value).toFixed(2)} x ${peer.name} (${peer.value.toFixed(0)} ${unit})` : ''
  process.stdout.write(`${name.padEnd(34)} ${value.toFixed(unit === 'ms' ? 2 : 0).padStart(7)} ${unit}${ratio}\n`)
}

function throughput(): void {
  for (const [name, producer] of [
    ['zeros, no line ends', `head -c ${MEGABYTES}000000 /dev/zero`],
    ['lines of 100 bytes', `yes ${'x'.repeat(99)} | head -c ${MEGABYTES}000000`],
  ] as const) {
    const file = join(directory, 'cat.out')
    const value = best(() => spawnSync('sh', ['-c', `${producer} | cat > '${file}'`]))
    rmSync(file)
    line(`alloc run, ${name}`, supervised(producer), 'MB/s', { name: 'cat > file', value })
  }
}

/** A command prints the time in each line; the file is polled continuously until the line appears. */
async function latency(): Promise<void> {
  const script = `let n = 0; const timer = setInterval(() => {
    process.stdout.write(String(performance.timeOrigin + performance.now()) + '\\n')
    if (++n === ${LATENCY_LINES}) clearInterval(timer) }, 5)`
  const child = spawn(OUTPOST, ['alloc', 'run', '-task', 'clock', '--', process.execPath, '-e', script], { env })
  const ended = new Promise((done) => child.once('exit', done))
  const id = await new Promise<string>((done) =>
    child.stdout.once('data', (text: Buffer) => done(text.toString().trim())),
  )
  const log = join(directory, 'alloc', id, 'alloc/logs/clock.stdout.0')
  const delaysMs: number[] = []
  for (let sizeBytes = 0; delaysMs.length < LATENCY_LINES; ) {
    const now = statSync(log, { throwIfNoEntry: false })?.size ?? 0
    if (now === sizeBytes) {
      await new Promise((next) => setImmediate(next))
      continue
    }
    const seenAtMs = performance.timeOrigin + performance.now()
    const lines = readFileSync(log, 'latin1').slice(sizeBytes, now).trimEnd().split('\n')
    for (const printedAt of lines) delaysMs.push(seenAtMs - Number(printedAt))
    sizeBytes = now
  }
  await ended
  delaysMs.sort((a, b) => a - b)
  line('print to file, median', delaysMs[LATENCY_LINES / 2] ?? Number.NaN, 'ms')
  line('print to file, 99th percentile', delaysMs[Math.floor(LATENCY_LINES * 0.99)] ?? Number.NaN, 'ms')
}

try {
  throughput()
  await latency()
  if (readdirSync(directory).length === 0) throw new Error('nothing was written')
} finally {
  rmSync(directory, { recursive: true, force: true })
}
