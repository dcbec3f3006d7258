/** The process of an agent ends although a handle was leaked. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { test } from 'node:test'

const SOURCE = join(import.meta.dirname, '../../src/daemon/agent-process.ts')

test('a failed start ends the process while a leaked handle keeps the event loop running', {
  timeout: 120_000,
}, async (t) => {
  const options = { dev: false, devNoDemo: true, config: ['/nowhere/outpost.hcl'] }
  const program = `
    import { runAgent } from ${JSON.stringify(SOURCE)}
    setInterval(() => undefined, 1_000_000)
    await runAgent(${JSON.stringify(options)}, 'test').catch(() => { process.exitCode = 1 })
  `
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'ignore' })
  t.after(() => child.kill('SIGKILL'))
  const [code] = (await once(child, 'exit')) as [number | null]
  assert.equal(code, 1)
})
