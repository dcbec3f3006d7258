/** The endpoints of high availability in one process, without a lease and a stream. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { haFault, TAKEOVER_MAX_MS } from '../../src/secrets/ha-endpoints/ha-side.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { ScriptedHa } from '../helpers/scripted-ha.ts'
import { ScriptedReplication } from '../helpers/scripted-replication.ts'

const NO_TOKEN = { token: null }

async function open(t: TestContext) {
  const ha = new ScriptedHa()
  const world = await CoreWorld.open(t, { ha })
  const health = (query = '') => world.ask('GET', `sys/health${query}`, undefined, NO_TOKEN)
  return { ha, world, health }
}

/** An unsealed server, while `s2` is active. */
async function standby(t: TestContext) {
  const opened = await open(t)
  await opened.world.core.enterStandby()
  opened.ha.become('s2')
  return opened
}

test('the active server is healthy and names itself as the leader', async (t) => {
  const { health, world } = await open(t)
  const { body, status } = await health()
  assert.deepEqual(
    [status, body['standby'], body['sealed'], 'ha_connection_healthy' in body],
    [200, false, false, false],
  )
  assert.deepEqual((await world.ask('GET', 'sys/leader', undefined, NO_TOKEN)).body, {
    ha_enabled: true,
    is_self: true,
    active_time: '2026-01-02T03:04:05.678Z',
    leader_address: 'http://s1:4646',
    leader_cluster_address: 'https://s1:4647',
    performance_standby: false,
    performance_standby_last_remote_wal: 0,
    raft_committed_index: 40,
    raft_applied_index: 38,
  })
  assert.deepEqual([world.core.isHaStandby, world.core.isSealed], [false, false])
})

test('a standby is unsealed, has the status 429 and names the active server', async (t) => {
  const { health, world } = await standby(t)
  assert.deepEqual([world.core.isHaStandby, world.core.isSealed, world.core.isActive], [true, false, false])
  const { body, status } = await health()
  assert.equal(status, 429)
  assert.deepEqual(
    [body['initialized'], body['sealed'], body['standby'], body['performance_standby'], body['ha_connection_healthy']],
    [true, false, true, false, true],
  )
  assert.deepEqual([body['replication_dr_mode'], body['replication_performance_mode']], ['disabled', 'disabled'])
  const codes = ['?standbycode=299', '?standbyok=true', '?standbyok=true&activecode=204', '?performancestandbycode=298']
  assert.deepEqual(await Promise.all(codes.map(async (code) => (await health(code)).status)), [299, 200, 204, 429])
  assert.equal((await health('?perfstandbyok=true')).status, 429)
  const leader = (await world.ask('GET', 'sys/leader', undefined, NO_TOKEN)).body
  assert.deepEqual(
    [leader['is_self'], leader['active_time'], leader['leader_address']],
    [false, '0001-01-01T00:00:00Z', 'http://s2:4646'],
  )
  const seal = (await world.ask('GET', 'sys/seal-status', undefined, NO_TOKEN)).body
  assert.deepEqual([seal['sealed'], 'ha_enabled' in seal], [false, false])
})

test('a server whose lease has run out is a standby for clients, and unhealthy in trouble', async (t) => {
  const { ha, health } = await open(t)
  ha.role = 'standby'
  ha.active = undefined
  const { body, status } = await health()
  assert.deepEqual([status, body['standby'], body['ha_connection_healthy']], [429, true, true])
  ha.trouble = 'NATS does not respond'
  assert.equal((await health('?standbyok=true')).status, 474)
})

test('a standby that cannot forward has the status 474, also with standbyok', async (t) => {
  const { ha, health } = await standby(t)
  ha.trouble = 'the stream is not available'
  const { body, status } = await health('?standbyok=true')
  assert.deepEqual([status, body['ha_connection_healthy']], [474, false])
  assert.equal((await health('?haunhealthycode=299')).status, 299)
})

test('an absent active server is a fault only after the longest takeover', () => {
  const ha = new ScriptedHa('s2')
  assert.equal(haFault(ha, 0), undefined)
  ha.active = undefined
  assert.equal(haFault(ha, 1000), undefined)
  assert.equal(haFault(ha, 1000 + TAKEOVER_MAX_MS - 1), undefined)
  assert.match(
    haFault(ha, 1000 + TAKEOVER_MAX_MS) ?? '',
    /^no server has been active for 15 s: check that .* NATS servers runs$/,
  )
  ha.become('s2')
  assert.equal(haFault(ha, 60_000), undefined)
  ha.active = undefined
  assert.equal(haFault(ha, 60_001), undefined, 'the next absence has its own time')
})

test('a sealed server refuses sys/leader, so stock clients report high availability', async (t) => {
  const { health, world } = await open(t)
  await world.core.seal()
  const { body, status } = await world.ask('GET', 'sys/leader', undefined, NO_TOKEN)
  assert.deepEqual([status, body.errors], [503, ['Vault is sealed']])
  assert.deepEqual([(await health()).status, world.core.isHaStandby, world.core.isSealed], [503, false, true])
})

test('a standby cannot be sealed, as in Vault', async (t) => {
  const { world } = await standby(t)
  const { body, status } = await world.ask('PUT', 'sys/seal')
  assert.deepEqual([status, body.errors], [500, ['vault cannot seal when in standby mode; please restart instead']])
  assert.equal(world.core.isHaStandby, true)
})

test('sys/step-down requires sudo and calls the active server to step down', async (t) => {
  const { ha, world } = await open(t)
  const { auth } = (await world.ask('POST', 'auth/token/create', { policies: ['default'] })).body
  const token = String(auth['client_token'])
  assert.equal((await world.ask('PUT', 'sys/step-down', undefined, { token })).status, 403)
  assert.deepEqual(ha.calls, [])
  const { status, text } = await world.ask('PUT', 'sys/step-down')
  assert.deepEqual([status, text, ha.calls], [204, '', ['stepDown']])
})

test('sys/ha-status lists the servers in the form of stock clients', async (t) => {
  const { world } = await open(t)
  const { body } = await world.ask('GET', 'sys/ha-status')
  const [active, ...others] = body.data['nodes'] as Record<string, unknown>[]
  assert.deepEqual(active, {
    hostname: 's1',
    api_address: 'http://s1:4646',
    cluster_address: 'https://s1:4647',
    active_node: true,
    last_echo: null,
    version: '1.2.3',
    upgrade_version: '1.2.3',
  })
  assert.deepEqual(
    others.map((node) => [node['hostname'], node['active_node'], node['cluster_address'], node['last_echo']]),
    [
      ['s2', false, '', '2026-01-02T03:04:05.678Z'],
      ['s3', false, '', '2026-01-02T03:04:05.678Z'],
    ],
  )
  assert.deepEqual(body['nodes'], body.data['nodes'])
})

test('sys/ha/members lists the servers with position and lag, and removes a lost one', async (t) => {
  const { ha, world } = await open(t)
  const { data } = (await world.ask('GET', 'sys/ha/members')).body
  assert.deepEqual([data['committed'], data['applied']], [40, 38])
  assert.deepEqual((data['members'] as object[])[1], {
    name: 's2',
    server_id: 'id-s2',
    api_address: 'http://s2:4646',
    version: '1.2.3',
    role: 'standby',
    position: 100,
    lag: 7,
    last_seen: '2026-01-02T03:04:05.678Z',
    is_self: false,
  })
  const removed = await world.ask('DELETE', 'sys/ha/members/s3')
  assert.equal(removed.status, 204, removed.text)
  const alive = await world.ask('DELETE', 'sys/ha/members/s2')
  assert.deepEqual([alive.status, alive.body.errors], [400, ['server "s2" is alive']])
  assert.deepEqual(ha.calls, ['removeMember s3', 'removeMember s2'])
  const policy = 'path "sys/ha/members/*" { capabilities = ["delete"] }'
  await world.ask('PUT', 'sys/policies/acl/no-sudo', { policy })
  const { auth } = (await world.ask('POST', 'auth/token/create', { policies: ['no-sudo'] })).body
  const refused = await world.ask('DELETE', 'sys/ha/members/s3', undefined, { token: String(auth['client_token']) })
  assert.deepEqual([refused.status, ha.calls.length], [403, 2])
})

test('without high availability the members are refused with the setting to change', async (t) => {
  const world = await CoreWorld.open(t)
  const { body, status } = await world.ask('GET', 'sys/ha/members')
  assert.equal(status, 400)
  assert.match(body.errors.join(), /^high availability is not enabled: set server \{ ha \{ enabled = true \} \}/)
  assert.equal((await world.ask('PUT', 'sys/step-down')).status, 204)
})

test('each server of a DR secondary has the status 472', async (t) => {
  const [ha, replication] = [new ScriptedHa(), new ScriptedReplication()]
  const world = await CoreWorld.open(t, { ha, replication })
  replication.world = world
  await replication.dr.enablePrimary({ primaryClusterAddr: '' })
  await replication.dr.demote({ secondaryId: '' })
  const health = async () => (await world.ask('GET', 'sys/health', undefined, NO_TOKEN)).status
  assert.deepEqual([await health(), world.core.isHaStandby, world.core.isSealed], [472, false, false])
  ha.become('s2')
  assert.deepEqual([await health(), world.core.isHaStandby, world.core.isSealed], [472, true, false])
})
