/**
 * Time from process start to the ready line, for a program as a package installs it: unpacked from the tarball, run by a
 * user that cannot write beside it. Requires root.
 *
 *     npm run dist -- x64 && node bench/start-package.ts [ROUNDS]
 */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { performance } from 'node:perf_hooks'

const PACKAGES = resolve(import.meta.dirname, '../dist/packages')
const ROUNDS = Number(process.argv[2] ?? 11)
/** The user "nobody" of every Linux. */
const USER = 65534
/** Ticks of the kernel in /proc. */
const TICK_MS = 10

interface Start {
  readonly elapsedMs: number
  readonly cpuMs: number
}

function unpack(directory: string): string {
  const name = readdirSync(PACKAGES).find((each) => each.endsWith(`-${process.platform}-${process.arch}.tar.zst`))
  if (name === undefined) throw new Error(`${PACKAGES} has no tarball: run "npm run dist" first`)
  const program = join(directory, 'program')
  mkdirSync(program)
  execFileSync('tar', ['--zstd', '--strip-components=1', '-xf', join(PACKAGES, name), '-C', program])
  return program
}

async function startOf(program: string, directory: string, role: string): Promise<Start> {
  const data = mkdtempSync(join(directory, 'data-'))
  const config = join(data, 'agent.hcl')
  const block = role === 'server' ? 'server { enabled = true }' : 'client { enabled = true }'
  writeFileSync(
    config,
    `data_dir = "${data}/data"\nlog_level = "error"\nports {\n  http = 0\n  cluster = 0\n}\n${block}\n`,
  )
  execFileSync('chown', ['-R', String(USER), data])
  const beganMs = performance.now()
  const child = spawn(join(program, 'bin/outpost'), ['agent', '-config', config], {
    uid: USER,
    gid: USER,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: '/usr/bin:/bin' },
  })
  for await (const chunk of child.stdout) if (String(chunk).includes('agent started')) break
  const elapsedMs = performance.now() - beganMs
  const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
  const cpuMs = (Number(fields[11]) + Number(fields[12])) * TICK_MS
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
  return { elapsedMs, cpuMs }
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}

const directory = mkdtempSync(join(tmpdir(), 'outpost-start-'))
chmodSync(directory, 0o755)
try {
  const program = unpack(directory)
  for (const role of ['server', 'agent']) {
    const starts: Start[] = []
    for (let round = 0; round < ROUNDS; round++) starts.push(await startOf(program, directory, role))
    const [elapsed, cpu] = [median(starts.map((each) => each.elapsedMs)), median(starts.map((each) => each.cpuMs))]
    process.stdout.write(`${role}: ready after ${elapsed.toFixed(0)} ms, ${cpu} ms of CPU (median of ${ROUNDS})\n`)
  }
} finally {
  rmSync(directory, { recursive: true, force: true })
}
