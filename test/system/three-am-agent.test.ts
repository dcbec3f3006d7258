/** Errors of an agent from docs/troubleshooting/: each is provoked, and its text is the documented one. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { ROOT_TOKEN, startCluster } from '../helpers/cluster.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { ALLOC, makeAllocation, UNKNOWN } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const TOKEN = 'a-token-of-the-operator'
const POLICY = 'node { policy = \\"write\\" } agent { policy = \\"write\\" } namespace \\"*\\" { policy = \\"write\\" }'
const SENSELESS = 'a1b2c3d4-0000-4000-8000-00000000000f'

function configOf(natsUrl: string): string {
  const sha256 = createHash('sha256').update(TOKEN).digest('hex')
  const acl = `acl {\n token "ops" {\n  sha256 = "${sha256}"\n  policy = "${POLICY}"\n }\n}`
  return [acl, `nats { servers = ["${natsUrl}"] }`, 'limits { http_max_followers = 1 }'].join('\n')
}

test('errors of an agent', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const natsLog = join(directory, 'nats.log')
  const users = '{ user: u, password: p, permissions: { publish: "may.>", subscribe: "may.>" } }'
  const small = `log_file: "${natsLog}"\nmax_payload: 512\nauthorization { users: [${users}] }\nno_auth_user: u`
  const nats = await startNatsServer(t, small)
  const config = writeConfig(directory, configOf(nats.url))
  makeAllocation(join(directory, 'data/alloc'), ALLOC)
  mkdirSync(join(directory, 'data/alloc', SENSELESS))
  writeFileSync(join(directory, 'data/alloc', SENSELESS, 'alloc.json'), '{"ClientStatus": 7}')
  const agent = await startAgent(t, ['-config', config])
  const call = async (path: string, init: RequestInit = {}, token = TOKEN) => {
    const answer = await fetch(`${agent.url}/v1/${path}`, { ...init, headers: { 'X-Nomad-Token': token } })
    return [answer.status, await answer.text()] as const
  }
  const logged = (pattern: RegExp) => eventually(() => pattern.test(agent.stderr()), String(pattern))

  await t.test('the NATS server has no permissions for the agent, or a small max_payload', async () => {
    await logged(/NATS server denied permission/)
    await logged(/node state exceeds the message size/)
    await eventually(() => /Publish Violation/.test(readFileSync(natsLog, 'utf8')), 'the log of NATS')
  })

  await t.test('no server is connected', async () => {
    for (const path of ['client/metadata', `client/metadata?node_id=${UNKNOWN}`, 'nodes']) {
      const token = path === 'client/metadata' ? 'a-token-of-a-server' : TOKEN
      assert.deepEqual(await call(path, {}, token), [503, 'no server is connected, try again'])
    }
  })

  await t.test('an invalid manifest, and garbage collection of a running allocation', async () => {
    await logged(new RegExp(`allocation unreadable.*${SENSELESS}.*ClientStatus`))
    const [status, text] = await call(`client/allocation/${ALLOC}/gc`)
    assert.equal(status, 409)
    assert.match(text, /allocation not eligible for GC/)
  })

  await t.test('one follower above limits.http_max_followers', async () => {
    const first = new AbortController()
    const path = `client/fs/logs/${ALLOC}?task=web&follow=true`
    const headers = { 'X-Nomad-Token': TOKEN }
    await fetch(`${agent.url}/v1/${path}`, { headers, signal: first.signal })
    const [status, text] = await call(path)
    assert.equal(status, 429)
    assert.match(text, /this agent already serves 1 followers \(limits\.http_max_followers\)/)
    first.abort()
  })

  await t.test('the state directory is not writable', async () => {
    const state = join(directory, 'data/client')
    renameSync(state, `${state}.away`)
    const [status, text] = await call('client/metadata', { method: 'POST', body: '{"Meta":{"a":"b"}}' })
    assert.equal(status, 500, text)
    assert.equal((await call('client/metadata'))[0], 200)
    renameSync(`${state}.away`, state)
    assert.equal((await call('client/metadata', { method: 'POST', body: '{"Meta":{"a":"b"}}' }))[0], 200)
    await logged(/cannot write the node state/)
  })
})

test('a frozen server: no server resolves the token', { timeout: 280_000 }, async (t) => {
  const sha256 = createHash('sha256').update(ROOT_TOKEN).digest('hex')
  const acl = `acl {\n token "ops" {\n  sha256 = "${sha256}"\n  policy = "${POLICY}"\n }\n}`
  const world = await startCluster(t, { hosts: 1, acl })
  const headers = { 'X-Nomad-Token': 'a-token-of-the-core' }
  world.server().signal('SIGSTOP')
  const answer = await fetch(`${world.host().member.url}/v1/client/metadata`, { headers })
  assert.deepEqual(
    [answer.status, await answer.text()],
    [503, 'no server responded to the request about this token, try again'],
  )
})
