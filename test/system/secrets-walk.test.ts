/** Runs the first steps in docs/operating/secrets.md as pasted into a shell. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { quietPort } from '../helpers/quiet-port.ts'

test('the five-minute introduction to secrets works as documented', async (t) => {
  const directory = workDirectory(t)
  const steps = shellBlocks('docs/operating/secrets.md', '## A server with secrets in five minutes')
  assert.equal(steps.length, 3)
  const port = await quietPort()
  const ports = `ports {\n http = ${port}\n cluster = 0\n}\nserver {`
  const script = steps.join('\n').replace('/tmp/secrets', `${directory}/data`).replace('server {', ports)
  const { code, stderr, stdout } = await runShell(directory, port, script)
  assert.equal(code, 0, `${stderr}\n${readFileSync(join(directory, 'server.log'), 'utf8')}`)
  assert.match(stdout, /^Sealed +false$[^]*Success! Enabled the kv secrets engine at: secret\//m)
  assert.match(stdout, /\ns3cretSuccess! Data deleted/)
  assert.match(stdout, /^password {4}s3cret$/m, 'it is there again')
})
