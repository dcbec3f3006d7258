/** The whole way of a disaster between two clusters: the primary is killed, its secondary takes over, and they change back. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { commandsAt } from '../helpers/secrets-server.ts'

const MOUNT = { type: 'kv', options: { version: '2' } }

async function write(server: DrServer, name: string, value: string): Promise<void> {
  await server.told('POST', `kv/data/${name}`, { data: { value } }, token)
}

async function read(server: DrServer, name: string): Promise<unknown> {
  const { data } = await server.told('GET', `kv/data/${name}`, undefined, token)
  return (data['data'] as Record<string, unknown>)['value']
}

/** The root token of the first primary, which is good for whoever has its data. */
let token = ''

test('failover, re-join and failback', { timeout: 180_000 }, async (t) => {
  const directory = workDirectory(t)
  const [a, b] = await Promise.all([DrServer.start(t, 'a', '', directory), DrServer.start(t, 'b', '', directory)])
  token = a.keys.token
  const command = async (server: DrServer, line: string, input = '', as = token) => {
    const { code, stderr, stdout } = await commandsAt(server.agent, directory)(line, input, as)
    assert.equal(code, 0, `${line}: ${stderr}`)
    return { stderr, stdout }
  }
  await command(a, 'operator dr enable')
  const activation = (await command(a, 'operator dr token b')).stdout.trim()
  assert.match((await command(b, 'operator dr enable -', activation, b.keys.token)).stdout, /key shares of the primary/)
  await b.follows(a)
  await b.unseal(a.keys)
  await a.told('POST', 'sys/mounts/kv', MOUNT)
  await write(a, 'before', '1')
  const { auth } = (await a.told('POST', 'auth/token/create', { policies: ['root'], ttl: '1h' })).body as {
    auth: Record<string, string>
  }
  await b.follows(a)
  assert.equal(await b.health(), 472)
  const refused = await b.ask('GET', 'kv/data/before', undefined, token)
  assert.equal(refused.status, 400)
  assert.deepEqual(refused.errors, [
    'path disabled in replication DR secondary mode',
    `ask the primary, ${a.agent.url}`,
  ])

  const shown = await command(a, 'operator dr status')
  assert.match(shown.stdout, /^Mode +primary$/m)
  assert.match(shown.stdout, /^Secondary b +http\S+ connected, \d+ entries behind$/m)
  await a.kill()
  const { stderr } = await command(b, 'operator dr failover -', `${a.keys.shares.join('\n')}\n`, '')
  assert.match(stderr, /^1\. .* is a DR secondary: [^]*^2\. An operation token [^]*^3\. It serves as the primary/m)
  assert.equal(await b.health(), 200)
  assert.equal(await read(b, 'before'), '1')
  await b.told('GET', 'auth/token/lookup-self', undefined, auth['client_token'])
  await write(b, 'during', '2')

  await a.restart()
  await a.unseal(a.keys)
  await eventually(async () => (await a.status())['state'] === 'fenced', 'the old primary learns of the new one')
  const late = await a.ask('POST', 'kv/data/late', { data: { value: 'x' } }, token)
  assert.equal(late.status, 503, late.text)
  await a.told('POST', `${DR}/primary/demote`, {}, token)
  assert.equal(await a.health(), 472)
  b.keys = { ...b.keys, token }
  const back = await a.operationToken(a.keys)
  const issued = await b.issue('a')
  await a.told('POST', `${DR}/secondary/update-primary`, { dr_operation_token: back, token: issued }, '')
  await a.follows(b)

  // A planned switch: nothing is lost, and both go on.
  await write(b, 'after', '3')
  await b.told('POST', `${DR}/primary/demote`, {}, token)
  await a.told('POST', `${DR}/secondary/promote`, { dr_operation_token: back }, '')
  const values = await Promise.all(['before', 'during', 'after'].map((name) => read(a, name)))
  assert.deepEqual(values, ['1', '2', '3'])
})
