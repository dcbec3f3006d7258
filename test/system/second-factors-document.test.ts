/** Runs the section on multi-factor authentication in docs/operating/auth.md as pasted into a shell; the authenticator is an independent program. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { TOTP, URI } from 'otpauth'
import { workDirectory } from '../helpers/agent-process.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { quietPort } from '../helpers/quiet-port.ts'

test('the documented steps create a method, protect a path and enroll a user, who reads and logs in with codes', async (t) => {
  const directory = workDirectory(t)
  const [admin, enrol, read, login, ...more] = shellBlocks('docs/operating/auth.md', '## Multi-factor authentication')
  assert.ok(admin && enrol && read && login && more.length === 0)
  const [enforce = '', logIn = ''] = login.split('\n')
  const port = await quietPort()
  const script = [
    `outpost agent -dev -dev-no-demo -dev-root-token-id root -http-port ${port} -cluster-port 0 > server.log 2>&1 &`,
    'until curl -sf "$OUTPOST_ADDR/v1/agent/ready" > /dev/null; do sleep 0.1; done',
    'printf root | outpost login -no-print -',
    admin,
    enrol,
    // The application has three codes at a time: each is for one request.
    'outpost kv get secret/payroll || echo "no code: $?"',
    read.replace('CODE', '$(next_code 0)'),
    'printf root | outpost login -no-print -',
    enforce,
    logIn.replace('CODE', '$(next_code 1)'),
  ]
  const program = join(import.meta.dirname, 'authenticator.ts')
  const helper = `next_code() { "$(command -v node)" ${program} enrolled.txt "$1"; }`
  const text = [helper, ...script].join('\n').replace('generate phone', 'generate phone | tee enrolled.txt')
  const { code, stderr, stdout } = await runShell(directory, port, text)
  assert.equal(code, 0, `${stderr}\n${readFileSync(join(directory, 'server.log'), 'utf8')}`)
  const url = /otpauth:\S+/.exec(stdout)?.[0] ?? ''
  assert.ok(URI.parse(url) instanceof TOTP)
  assert.match(stderr, /requires an unused code of phone, use -mfa METHOD:CODE/)
  assert.match(stdout, /^no code: 1$/m)
  assert.match(stdout, /^iban +DE00$/m)
  assert.match(stdout, /^token_meta_username +alice$/m)
})
