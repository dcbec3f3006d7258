/** Runs the section on one-time codes in docs/operating/engines.md as pasted into a shell. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { quietPort } from '../helpers/quiet-port.ts'

test('one-time codes are generated and verified by the documented steps', async (t) => {
  const directory = workDirectory(t)
  const [commands, ...more] = shellBlocks('docs/operating/engines.md', '## One-time codes (TOTP)')
  assert.ok(commands && more.length === 0)
  const port = await quietPort()
  const begin = [
    `outpost agent -dev -dev-no-demo -dev-root-token-id root -http-port ${port} -cluster-port 0 > server.log 2>&1 &`,
    'until outpost status > /dev/null 2>&1; do sleep 0.1; done',
    'printf root | outpost login -no-print -',
  ]
  const { code, stderr, stdout } = await runShell(directory, port, [...begin, commands].join('\n'))
  assert.equal(code, 0, `${stderr}\n${readFileSync(join(directory, 'server.log'), 'utf8')}`)
  assert.match(stdout, /^\d{6}otpauth:/m)
  assert.match(stdout, /otpauth:\/\/totp\/Example:ann@example\.com\?\S*secret=[A-Z2-7]{32}/)
  assert.match(stdout, /^valid +false$/m)
})
