/**
 * DR replication from an HA cluster with synchronous commits: the active server is killed again and again during writes, and at last the
 * secondary is promoted. No acknowledged write is missing there, and the cluster acknowledges none after that. Then the reverse: an HA
 * cluster as the secondary.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { startHaCluster } from '../../helpers/ha-cluster.ts'
import { operationToken, startDrServer } from '../../helpers/ha/dr-server.ts'

const DR = '/v1/sys/replication/dr'
const KILLS = 3
const CLIENTS = 8
/** Longer than a takeover: a commit waits for the secondary. */
const SETTINGS = 'server {\n  replication {\n    sync = true\n    sync_timeout = "120s"\n  }\n}'

test('no acknowledged write is missing on the promoted secondary after kills of the active server', {
  timeout: 600_000,
}, async (t) => {
  const { cluster } = await startHaCluster(t, { nats: ['n1'], serverSettings: SETTINGS })
  const secondary = await startDrServer(t, cluster)
  const [first] = cluster.servers
  assert.ok(first)
  const told = async (method: string, path: string, body?: object) => {
    const answer = await cluster.ask(first, method, path, body)
    assert.ok(answer.status < 300, `${path}: ${answer.status} ${answer.body}`)
    return answer.body === '' ? {} : JSON.parse(answer.body)
  }
  await told('POST', `${DR}/primary/enable`, {})
  const { wrap_info: wrapped } = await told('POST', `${DR}/primary/secondary-token`, { id: 'east' })
  await secondary.follow(wrapped.token, first.url, cluster)
  const sync = async () => (await told('GET', `${DR}/status`)).data.sync
  await cluster.until('commits wait for the secondary', async () => (await sync()) === 'on')

  const acknowledged: string[] = []
  const ending = new AbortController()
  const write = async (client: number) => {
    for (let at = 0; !ending.signal.aborted; at++) {
      const server = cluster.servers[(client + at) % cluster.servers.length]
      const key = `c${client}-${at}`
      const done = server && cluster.ask(server, 'POST', `/v1/secret/data/${key}`, { data: { key } })
      const answer = await done?.catch(() => undefined)
      if (answer?.status === 200) acknowledged.push(key)
      else await sleep(50)
    }
  }
  const writers = Array.from({ length: CLIENTS }, (_, client) => write(client))
  for (let kill = 0; kill < KILLS; kill++) {
    await sleep(1500)
    const active = await cluster.activeServer()
    const before = acknowledged.length
    await active.process.kill()
    await cluster.until('writes are acknowledged again', () => acknowledged.length > before + CLIENTS)
    await cluster.restart(active)
  }
  const active = await cluster.activeServer()
  await active.process.kill()
  await secondary.promote(cluster.unsealKey)
  // The cluster takes over and goes on until it knows of the promotion.
  await sleep(8000)
  ending.abort()
  await Promise.all(writers)
  t.diagnostic(`${acknowledged.length} acknowledged writes`)
  const listed = new Set(await secondary.list('secret/metadata', cluster.token))
  assert.deepEqual(
    acknowledged.filter((key) => !listed.has(key)),
    [],
  )
  const refused = await cluster.ask(
    cluster.servers.find(({ name }) => name !== active.name) ?? first,
    'POST',
    '/v1/secret/data/late',
    {
      data: {},
    },
  )
  assert.match(refused.body, /fenced/)
})

test('an HA cluster is a secondary: it follows while it is sealed, through a kill, and is promoted', {
  timeout: 600_000,
}, async (t) => {
  const { cluster } = await startHaCluster(t, { nats: ['n1'] })
  const primary = await startDrServer(t, cluster)
  await primary.told('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
  for (let at = 0; at < 50; at++) await primary.told('POST', `secret/data/k${at}`, { data: { v: 'x'.repeat(3000) } })
  await primary.told('POST', 'sys/replication/dr/primary/enable', {})
  const { wrap_info: wrapped } = await primary.told('POST', 'sys/replication/dr/primary/secondary-token', { id: 'ha' })
  const [first, second] = cluster.servers
  assert.ok(first && second)
  const enabled = await cluster.ask(first, 'POST', `${DR}/secondary/enable`, {
    token: wrapped.token,
    primary_api_addr: primary.url,
  })
  assert.equal(enabled.status, 200, enabled.body)
  const running = () => cluster.servers.filter(({ process }) => process.isRunning)
  const hasAll = async () => {
    const { position } = await primary.status()
    const all = await Promise.all(running().map((server) => cluster.ask(server, 'GET', `${DR}/status`)))
    return all.every(({ body }) => {
      const { mode, position: own } = JSON.parse(body).data
      return mode === 'secondary' && own === position
    })
  }
  await cluster.until('the sealed members have the entries', hasAll)

  const isActive = ({ process }: (typeof cluster.servers)[number]) =>
    /.*this server is (active|no longer active)/s.exec(process.log)?.[1] === 'active'
  const active = running().find(isActive)
  assert.ok(active)
  await active.process.kill()
  await primary.told('POST', 'secret/data/after', { data: { v: 'kill' } })
  await cluster.until('the next one follows', hasAll)
  active.process.start()
  await cluster.answers(active)
  for (const server of cluster.servers) {
    await cluster.ask(server, 'PUT', '/v1/sys/unseal', { key: primary.key })
    const { url } = server
    await cluster.until('it is an unsealed secondary', async () => (await fetch(`${url}/v1/sys/health`)).status === 472)
  }
  // Any member serves the operations.
  const token = await operationToken([first, second], primary.key)
  const promoted = await cluster.ask(second, 'POST', `${DR}/secondary/promote`, { dr_operation_token: token })
  assert.equal(promoted.status, 200, promoted.body)
  const headers = { 'X-Vault-Token': primary.token }
  const read = await fetch(`${first.url}/v1/secret/data/after`, { headers })
  assert.match(await read.text(), /kill/)
  await cluster.until('the old primary is fenced', async () => {
    const answer = await fetch(`${primary.url}/v1/secret/data/late`, { method: 'POST', headers, body: '{"data":{}}' })
    return /fenced/.test(await answer.text())
  })
})
