/**
 * DR replication from an HA cluster with synchronous commits: the active server is killed again and again during writes, and at last the
 * secondary is promoted. No acknowledged write is missing there, and the cluster acknowledges none after that.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { startHaCluster } from '../../helpers/ha-cluster.ts'
import { startDrSecondary } from '../../helpers/ha/dr-secondary.ts'

const DR = '/v1/sys/replication/dr'
const KILLS = 3
const CLIENTS = 8
/** Longer than a takeover: a commit waits for the secondary. */
const SETTINGS = 'server {\n  replication {\n    sync = true\n    sync_timeout = "120s"\n  }\n}'

test('no acknowledged write is missing on the promoted secondary after kills of the active server', {
  timeout: 600_000,
}, async (t) => {
  const { cluster } = await startHaCluster(t, { nats: ['n1'], serverSettings: SETTINGS })
  const secondary = await startDrSecondary(t, cluster)
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
