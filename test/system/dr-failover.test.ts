/** The whole way of a disaster between two clusters: the primary is killed, its secondary takes over, and they change back. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DR, type DrServer, drPair } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'

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
  const { primary: a, secondary: b } = await drPair(t)
  token = a.keys.token
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

  await a.kill()
  const dr_operation_token = await b.operationToken(a.keys)
  const promoted = await b.told('POST', `${DR}/secondary/promote`, { dr_operation_token }, '')
  assert.match(promoted.warnings[0] ?? '', /^This cluster is being promoted to a replication primary/)
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
