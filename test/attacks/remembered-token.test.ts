/**
 * Cached tokens at an agent: an attacker calls it directly with a token that is used up, expired, revoked or bound to
 * addresses, or while the core is sealed or a standby.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { startCluster } from '../helpers/cluster.ts'
import { api, openCore, OPS_ACL, tokenWith } from '../helpers/cluster-core.ts'
import { send } from '../helpers/openbao-replay.ts'
import { eventually } from '../helpers/eventually.ts'

const READER = { name: 'reader', text: 'node { policy = "read" }' }
test('an agent refuses a cached token after its last use, its expiry, its revocation and a seal', {
  timeout: 240_000,
}, async (t) => {
  const world = await startCluster(t, { here: ['client'], hosts: 1, acl: OPS_ACL, hostAcl: 'acl { enabled = true }' })
  const { member } = world.host()
  const core = await openCore(world)
  const path = '/v1/client/metadata'
  const statusWith = async (token: string) =>
    (await send(member.port, { method: 'GET', path, headers: { 'X-Nomad-Token': token } })).status
  const make = (more: Readonly<Record<string, unknown>>) => tokenWith(world, core, READER, more)
  const lasting = await make({})
  assert.equal(await statusWith(lasting.client_token), 200)

  await t.test('a token with one use succeeds once, for any number of concurrent calls', async () => {
    const { client_token: token } = await make({ num_uses: 1 })
    const statuses = await Promise.all([1, 2, 3, 4, 5].map(() => statusWith(token)))
    assert.deepEqual(
      statuses.toSorted((a, b) => a - b),
      [200, 403, 403, 403, 403],
    )
    assert.equal(await statusWith(token), 403)
  })

  await t.test('a token with three uses succeeds three times', async () => {
    const { client_token: token } = await make({ num_uses: 3 })
    const statuses: number[] = []
    for (let count = 0; count < 5; count++) statuses.push(await statusWith(token))
    assert.deepEqual(statuses, [200, 200, 200, 403, 403])
  })

  await t.test('a token with bound addresses is refused if only the agent knows the address', async () => {
    const role = { token_bound_cidrs: '127.0.0.1/32', allowed_policies: READER.name }
    await api(world, 'POST', 'auth/token/roles/bound', role, core.rootToken)
    const made = await api(
      world,
      'POST',
      'auth/token/create/bound',
      { policies: [READER.name], no_default_policy: true },
      core.rootToken,
    )
    assert.equal(await statusWith(made.auth.client_token), 403)
    const said = 'address-bound token refused, the caller address was not verified by a server'
    await eventually(async () => world.server().stderr.includes(said), 'the server says why')
  })

  await t.test('a token that is revoked by its accessor is refused at the agent', async () => {
    const { accessor, client_token: token } = await make({})
    assert.equal(await statusWith(token), 200)
    await api(world, 'POST', 'auth/token/revoke-accessor', { accessor }, core.rootToken)
    await eventually(async () => (await statusWith(token)) === 403, 'the agent asks again')
  })

  await t.test('every token is refused once the core is sealed', async () => {
    assert.equal(await statusWith(lasting.client_token), 200)
    await api(world, 'PUT', 'sys/seal', {}, core.rootToken)
    assert.equal(await statusWith(lasting.client_token), 503, 'the agent was notified before the seal was answered')
    await api(world, 'PUT', 'sys/unseal', { key: core.key }, '')
    assert.equal(await statusWith(lasting.client_token), 200)
  })

  await t.test('a token that expires while no server answers is refused', async () => {
    const { client_token: short } = await make({ ttl: '4s' })
    const madeAtMs = performance.now()
    assert.equal(await statusWith(short), 200)
    assert.equal(await statusWith(lasting.client_token), 200)
    await world.server().kill()
    await pause(Math.max(0, 4000 - (performance.now() - madeAtMs)))
    assert.equal(await statusWith(short), 503)
  })

  await t.test('every token is refused once the core is a standby', async () => {
    const server = world.server()
    await server.start()
    await api(world, 'PUT', 'sys/unseal', { key: core.key }, '')
    await eventually(async () => (await statusWith(lasting.client_token)) === 200, 'the agent asks again')
    await api(world, 'POST', 'sys/replication/dr/primary/enable', {}, core.rootToken)
    await api(world, 'POST', 'sys/replication/dr/primary/demote', {}, core.rootToken)
    const isStandingBy = async () =>
      (await send(server.port, { method: 'GET', path: '/v1/sys/health', headers: {} })).status === 472
    await eventually(isStandingBy, 'the core stands by')
    assert.equal(await statusWith(lasting.client_token), 503, 'the agent was notified')
  })
})
