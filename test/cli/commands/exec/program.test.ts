/** The process of `exec`: which environment it has after changes that arrive while it stops. */
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { Program } from '../../../../src/cli/commands/exec/program.ts'
import { SignalForwarder } from '../../../../src/supervisor/signal-forwarder.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { temporaryDirectory } from '../../../helpers/temporary-directory.ts'

const KILL_TIMEOUT_MS = 30_000

test('of several changes while the program stops, the next start has the last', async (t) => {
  const out = join(temporaryDirectory(t), 'out')
  const signals = new SignalForwarder(KILL_TIMEOUT_MS)
  t.after(() => signals.detach())
  const script = 'echo "$KEY" >> "$OUT"; [ "$KEY" = one ] || exit 5; sleep 1000 & wait'
  const envOf = (KEY: string) => ({ PATH: process.env['PATH'], OUT: out, KEY })
  const program = new Program({ command: ['sh', '-c', script], signals, killTimeoutMs: KILL_TIMEOUT_MS }, envOf('one'))
  const ended = program.run()
  await eventually(() => existsSync(out) && readFileSync(out, 'utf8') === 'one\n', 'it runs')
  program.restart(envOf('two'))
  program.restart(envOf('three'))
  assert.equal(await ended, 5)
  assert.equal(readFileSync(out, 'utf8'), 'one\nthree\n')
})
