/** While NATS is down, a server must report its nodes as disconnected instead of ready. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startCluster } from '../helpers/cluster.ts'
import { eventually } from '../helpers/eventually.ts'

// Nodes are `disconnected` after a beat and a little, and must not be down before all are connected again.
process.env['OUTPOST_TIMINGS'] = JSON.stringify({ heartbeatMs: 4000, reconnectMinMs: 100, reconnectMaxMs: 500 })

test('nodes are disconnected while NATS is down, and ready again after its restart', {
  timeout: 280_000,
}, async (t) => {
  const world = await startCluster(t, { here: ['server', 'client'], hosts: 1 })
  const { url } = world.server()
  const { nodeId } = world.host().member
  const get = async (path: string) => await (await fetch(`${url}${path}`)).text()
  const seen = async () => ({
    list: (JSON.parse(await get('/v1/nodes')) as { Status: string }[]).map(({ Status }) => Status),
    one: (JSON.parse(await get(`/v1/node/${nodeId}`)) as { Status: string; StatusDescription: string }).Status,
    filtered: (JSON.parse(await get('/v1/nodes?filter=Status==disconnected')) as unknown[]).length,
  })
  const metric = async (status: string) =>
    Number(
      new RegExp(`outpost_nodes\\{[^}]*status="${status}"[^}]*\\} (\\d+)`).exec(
        await get('/v1/metrics?format=prometheus'),
      )?.[1],
    )
  assert.deepEqual(await seen(), { list: ['ready'], one: 'ready', filtered: 0 })
  const statuses = new Set<string>()
  const look = async (wanted: string) => {
    const { one } = await seen()
    statuses.add(one)
    return one === wanted
  }
  await world.nats.kill()
  await eventually(() => look('disconnected'), 'the node is of unknown state')
  assert.deepEqual(await seen(), { list: ['disconnected'], one: 'disconnected', filtered: 1 })
  assert.equal(await metric('disconnected'), 1)
  assert.equal(await metric('ready'), 0)
  await world.nats.restart()
  await eventually(() => look('ready'), 'the node is ready again')
  assert.deepEqual([...statuses].sort(), ['disconnected', 'ready'], 'never down')
  assert.equal(await metric('ready'), 1)
})
