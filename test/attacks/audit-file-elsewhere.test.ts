/**
 * A holder of a token with sudo on `sys/audit` has the server make files where other programs take them for their own: a
 * table of cron, a profile of a shell, the state of the agent. Lines hold text that callers choose.
 */
import assert from 'node:assert/strict'
import { existsSync, linkSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { freshServer } from '../helpers/secrets-server.ts'

test('audit files are created only in the allowed directories', async (t) => {
  const { agent, directory, keys, run, token } = await freshServer(t, '-key-shares=1 -key-threshold=1')
  assert.equal((await run('operator unseal -', `${keys[0] ?? ''}\n`)).code, 0)
  const enable = async (file: string) => {
    const answer = await fetch(`${agent.url}/v1/sys/audit/file`, {
      method: 'PUT',
      headers: { 'X-Vault-Token': token },
      body: JSON.stringify({ type: 'file', options: { file_path: file, prefix: '* * * * * root id #' } }),
    })
    return { status: answer.status, text: await answer.text() }
  }
  const outside = join(directory, 'cron.d')
  mkdirSync(outside)
  const elsewhere = [
    join(outside, 'job'),
    join(directory, 'data/server/roster.db'),
    join(directory, 'data/client/state.json'),
    join(directory, 'data/audit.log'),
    join(directory, 'data/auditor/audit.log'),
    join(directory, 'data/audit/../server/roster.db'),
  ]
  for (const file of elsewhere) {
    const { status, text } = await enable(file)
    assert.equal(status, 400, `${file}: ${text}`)
  }
  symlinkSync(join(outside, 'job'), join(directory, 'data/audit/link'))
  assert.equal((await enable(join(directory, 'data/audit/link'))).status, 400)
  assert.ok(!existsSync(join(outside, 'job')))
  symlinkSync(outside, join(directory, 'data/audit/folder'))
  const { status: throughFolder, text: why } = await enable(join(directory, 'data/audit/folder/job'))
  assert.deepEqual([throughFolder, existsSync(join(outside, 'job'))], [400, false], why)
  writeFileSync(join(outside, 'table'), '')
  linkSync(join(outside, 'table'), join(directory, 'data/audit/table'))
  const hardLink = await enable(join(directory, 'data/audit/table'))
  assert.equal(hardLink.status, 400)
  assert.match(hardLink.text, /has several hard links/)
  assert.equal(readFileSync(join(outside, 'table'), 'utf8'), '')
  const { status, text } = await enable(join(outside, 'job'))
  assert.match(text, /server \{ audit_dirs = \[\.\.\.\] \}/)
  assert.equal(status, 400)
  assert.equal((await enable(join(directory, 'data/audit/audit.log'))).status, 204)
})

test('the configuration can allow other directories', async (t) => {
  const { directory, keys, run, token } = await freshServer(t, '-key-shares=1 -key-threshold=1')
  assert.equal((await run('operator unseal -', `${keys[0] ?? ''}\n`)).code, 0)
  const faulty = join(directory, 'faulty.hcl')
  writeFileSync(faulty, 'server {\n audit_dirs = ["logs", "/var/log/../etc", "/var/log/audit"]\n}\n')
  const checked = await run(`validate ${faulty}`, '', token)
  assert.equal(checked.code, 1)
  assert.equal(checked.stderr.split('\n').filter((line) => line.includes('audit_dirs')).length, 2, checked.stderr)
})
