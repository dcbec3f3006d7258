/**
 * An attacker has taken over a worker host with its NATS key, its files and its subscriptions. It receives calls to that
 * host, whose content must be useless elsewhere.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connect } from '@nats-io/transport-node'
import { ROOT_TOKEN, startCluster } from '../helpers/cluster.ts'
import { openCore, OPS_ACL, tokenWith } from '../helpers/cluster-core.ts'
import { send } from '../helpers/openbao-replay.ts'
import { eventually } from '../helpers/eventually.ts'

const READER = { name: 'reader', text: 'node { policy = "read" }\nnamespace "default" { policy = "write" }' }

test('calls to a compromised host reveal no token and grant nothing elsewhere', { timeout: 240_000 }, async (suite) => {
  const world = await startCluster(suite, {
    here: ['server', 'client'],
    hosts: 2,
    acl: OPS_ACL,
    hostAcl: 'acl { enabled = true }',
  })
  const core = await openCore(world)

  await suite.test('no message to a worker contains the token of a caller', async (t) => {
    const [victim, other] = [world.host(0), world.host(1)]
    const { client_token: token } = await tokenWith(world, core, READER, { num_uses: 40 })
    const bus = await connect({ servers: [world.nats.url] })
    t.after(() => bus.close())
    // NATS without users lets any client subscribe; with users the key of a worker receives messages of its own node only.
    const heard: Buffer[] = []
    bus.subscribe(`outpost.global.node.${victim.member.nodeId}.>`, {
      callback: (_error, { data }) => void heard.push(Buffer.from(data)),
    })
    await bus.flush()
    const paths = [
      `/v1/client/fs/ls/${victim.allocId}`,
      `/v1/client/fs/cat/${victim.allocId}?path=web/local/hello.txt`,
      `/v1/client/fs/logs/${victim.allocId}?task=web&type=stdout`,
      `/v1/client/metadata?node_id=${victim.member.nodeId}`,
      `/v1/client/allocation/${victim.allocId}/stats`,
    ]
    for (const path of paths) {
      // Through a server, and through another worker, which asks a server.
      for (const port of [world.server().port, other.member.port]) {
        for (const as of [token, core.rootToken, ROOT_TOKEN]) {
          const { status, body } = await send(port, { method: 'GET', path, headers: { 'X-Nomad-Token': as } })
          assert.equal(status, 200, `${path}: ${body}`)
        }
      }
    }
    const gc = { method: 'PUT', path: '/v1/system/gc', headers: { 'X-Nomad-Token': core.rootToken } }
    assert.equal((await send(world.server().port, gc)).status, 200)
    const all = () => Buffer.concat(heard).toString('latin1')
    await eventually(() => all().includes('host.gc'))
    assert.ok(heard.length >= paths.length * 6, `${heard.length} messages`)
    for (const secret of [token, core.rootToken, ROOT_TOKEN, core.key]) assert.ok(!all().includes(secret))
  })

  await suite.test('the host checks the permissions of the caller, and a use is counted once', async () => {
    const { member, allocId } = world.host()
    const { client_token: token } = await tokenWith(
      world,
      core,
      { name: 'logs', text: 'namespace "default" { capabilities = ["read-logs"] }' },
      { num_uses: 4 },
    )
    const statusOf = async (path: string) =>
      (await send(world.server().port, { method: 'GET', path, headers: { 'X-Nomad-Token': token } })).status
    const logs = `/v1/client/fs/logs/${allocId}?task=web&type=stdout`
    assert.equal(await statusOf(logs), 200)
    assert.equal(await statusOf(`/v1/client/fs/ls/${allocId}`), 403)
    assert.equal(await statusOf(`/v1/client/metadata?node_id=${member.nodeId}`), 403)
    // The host resolves no token, so one call is one use.
    assert.equal(await statusOf(logs), 200)
    assert.equal(await statusOf(logs), 403)
  })
})

test('a host with ACL refuses calls of a server without ACL', { timeout: 240_000 }, async (t) => {
  const world = await startCluster(t, {
    here: ['server', 'client'],
    hosts: 1,
    acl: 'acl { enabled = false }',
    hostAcl: 'acl { enabled = true }',
    isShut: true,
  })
  const { member, allocId } = world.host()
  for (const path of [`/v1/client/fs/ls/${allocId}`, `/v1/client/metadata?node_id=${member.nodeId}`]) {
    const { status, body } = await send(world.server().port, { method: 'GET', path, headers: {} })
    assert.equal(status, 403)
    assert.match(body, /accepts only calls with the assertion of a server; a server with acl \{ enabled = false \}/)
  }
})
