/** The first steps in docs/operating.md, as somebody pastes them into a shell. */
import assert from 'node:assert/strict'
import { readFileSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { OUTPOST, ROOT, start } from '../cli/outpost-process.ts'
import { workDirectory } from '../helpers/agent-process.ts'

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo
  await new Promise((done) => server.close(done))
  return port
}

test('a server with secrets in five minutes', async (t) => {
  const directory = workDirectory(t)
  const text = readFileSync(join(ROOT, 'docs/operating.md'), 'utf8')
  const [, section = ''] = text.split('## A server with secrets in five minutes\n')
  const walk = section.split('\n## ')[0] ?? ''
  const steps = [...walk.matchAll(/```sh\n([^]*?)```/g)].map(([, block]) => block ?? '')
  assert.equal(steps.length, 3)
  const port = await freePort()
  const ports = `ports {\n http = ${port}\n cluster = 0\n}\nserver {`
  const script = steps.join('\n').replace('/tmp/secrets', `${directory}/data`).replace('server {', ports)
  symlinkSync(OUTPOST, join(directory, 'outpost'))
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    PATH: `${directory}:${process.env['PATH']}`,
    HOME: directory,
    OUTPOST_ADDR: `http://127.0.0.1:${port}`,
  }
  for (const name of ['OUTPOST_TOKEN', 'NOMAD_TOKEN', 'VAULT_TOKEN', 'VAULT_FORMAT', 'OUTPOST_FORMAT']) delete env[name]
  const program = `set -e\ntrap 'kill $!' EXIT\n${script}`
  const { code, stderr, stdout } = await start('sh', ['-c', program], { env, cwd: directory }).finished
  assert.equal(code, 0, `${stderr}\n${readFileSync(join(directory, 'server.log'), 'utf8')}`)
  assert.match(stdout, /^Sealed +false$[^]*Success! Enabled the kv secret engine at: secret\//m)
  assert.match(stdout, /\ns3cretSuccess! Data deleted/)
  assert.match(stdout, /^password {4}s3cret$/m, 'it is there again')
})
