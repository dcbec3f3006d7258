/**
 * A worker with a valid key sends more than a node may: thousands of messages, states that are too large, more
 * allocations than allowed. It is refused, counted and logged once, without an effect on other nodes.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connect } from '@nats-io/transport-node'
import { ALLOCATIONS_MAX, STATE_BYTES_MAX } from '../../src/cluster/roster/node-messages.ts'
import { ROOT_TOKEN, startCluster } from '../helpers/cluster.ts'
import { allocationOf, idOf } from '../helpers/fleet-server.ts'
import { HostileNode } from '../helpers/hostile-node.ts'
import { ask } from '../helpers/raw-http.ts'
import { eventually } from '../helpers/eventually.ts'

const ATTACKER = 'f100d000-0000-4000-8000-000000000001'

test('the servers limit a node that floods them', { timeout: 300_000 }, async (t) => {
  const world = await startCluster(t, { hosts: 1, nats: 'max_payload: 64MB\nmax_pending: 256MB' })
  const server = world.server()
  const bus = await connect({ servers: [world.nats.url] })
  t.after(() => bus.close())
  const attacker = new HostileNode(bus, ATTACKER)

  const get = async (path: string) => {
    const { body, status } = await ask(server.port, 'GET', path, `X-Nomad-Token: ${ROOT_TOKEN}`)
    return { status, text: body.toString() }
  }
  const refused = async (reason: string) => {
    const { text } = await get('/v1/metrics?format=prometheus')
    return Number(new RegExp(`outpost_roster_refused_total\\{[^}]*reason="${reason}"[^}]*\\} (\\d+)`).exec(text)?.[1])
  }
  const statusOf = async (id: string) =>
    JSON.parse((await get(`/v1/node/${id}`)).text) as { Status: string; Meta: Record<string, string> }

  await attacker.claim(allocationOf(idOf('f100d0a1')))
  await eventually(async () => (await get(`/v1/node/${ATTACKER}`)).status === 200, 'the attacker is a node')

  await t.test('a state above the size limit is refused', async () => {
    const before = await refused('bytes')
    await attacker.say('state', attacker.stateOf([], { a: 'x'.repeat(STATE_BYTES_MAX) }))
    await attacker.say('beat', Buffer.concat([attacker.beat(), Buffer.alloc(100_000)]))
    await eventually(async () => (await refused('bytes')) === before + 2, 'both are refused')
  })

  await t.test('a state with too many allocations is refused', async () => {
    const many = Array.from({ length: ALLOCATIONS_MAX + 1 }, (_, serial) => allocationOf(idOf('f100d0aa', serial)))
    await attacker.say('state', attacker.stateOf(many))
    await eventually(async () => (await refused('allocations')) === 1, 'it is refused')
    assert.equal((await get(`/v1/allocation/${idOf('f100d0aa')}`)).status, 404)
    assert.equal((await get(`/v1/allocation/${idOf('f100d0a1')}`)).status, 200, 'what was said before stays')
  })

  await t.test('thousands of concurrent states delay neither other nodes nor the server', async () => {
    const host = world.host()
    const before = await refused('rate')
    const states = Array.from({ length: 20 }, (_, serial) =>
      attacker.stateOf([allocationOf(idOf('f100d0a1'))], { serial: String(serial), filler: 'x'.repeat(60_000) }),
    )
    const slowest = { ms: 0 }
    const over = { is: false }
    const probing = (async () => {
      while (!over.is) {
        const startMs = performance.now()
        assert.equal((await get(`/v1/client/fs/ls/${host.allocId}`)).status, 200)
        slowest.ms = Math.max(slowest.ms, performance.now() - startMs)
      }
    })()
    for (let round = 0; round < 100; round++) for (const state of states) await attacker.say('state', state)
    over.is = true
    await probing
    // Sixty at once and five a second: the rest never reached the signature check.
    await eventually(async () => (await refused('rate')) > before + 1200, 'they are refused')
    t.diagnostic(
      `${(await refused('rate')) - before} of 2000 states were refused, slowest answer ${slowest.ms.toFixed(0)} ms`,
    )
    assert.equal((await statusOf(host.member.nodeId)).Status, 'ready')
    assert.equal((await statusOf(ATTACKER)).Status, 'ready', 'its own record stays as it was')
  })

  await t.test('changes of other nodes are applied at once, and the log has one line for each reason', async () => {
    const { nodeId, port } = world.host().member
    const body = JSON.stringify({ NodeID: nodeId, Meta: { after: 'the-flood' } })
    const said = await fetch(`http://127.0.0.1:${port}/v1/client/metadata`, { method: 'POST', body })
    assert.equal(said.status, 200)
    await eventually(async () => (await statusOf(nodeId)).Meta['after'] === 'the-flood', 'the server has heard it')
    const lines = server.stderr.split('\n').filter((line) => line.includes(ATTACKER) && line.includes('rejected'))
    assert.ok(lines.length >= 3 && lines.length <= 8, `${lines.length} lines: ${lines.join('\n')}`)
  })
})
