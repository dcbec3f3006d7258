/** The commands of high availability: what they send and print. The texts of step-down and status are those of the stock command. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { recordingCore, runAt } from './recording-core.ts'

const UNSEALED = {
  type: 'shamir',
  initialized: true,
  sealed: false,
  t: 2,
  n: 3,
  version: '1.0',
  storage_type: 'sqlite',
}
const LEADER = {
  ha_enabled: true,
  is_self: true,
  active_time: '2026-01-02T03:04:05.678Z',
  leader_address: 'http://s1:4646',
  leader_cluster_address: '',
  raft_committed_index: 40,
  raft_applied_index: 38,
}

test('step-down prints what the stock command prints, and has its exit codes', async (t) => {
  const core = await recordingCore(t)
  assert.deepEqual(await runAt(core, ['operator', 'step-down']), {
    code: 0,
    out: `Success! Stepped down: ${core.url}\n`,
    err: '',
  })
  assert.deepEqual(
    core.asked.map(({ line }) => line),
    ['GET sys/leader', 'PUT sys/step-down'],
  )
  core.answers = { 'GET sys/leader': [200, { ...LEADER, is_self: false }] }
  const { out: named } = await runAt(core, ['operator', 'step-down'])
  assert.equal(named, 'Success! Stepped down: http://s1:4646\n', 'the addressed server is a standby')
  core.otherwise = [403, { errors: ['permission denied'] }]
  const { code, err, out } = await runAt(core, ['operator', 'step-down'])
  assert.deepEqual([code, out], [2, ''])
  assert.match(err, /stepping down failed: permission denied/)
})

test('members remove deletes the member and quotes its name', async (t) => {
  const core = await recordingCore(t)
  const { code, out } = await runAt(core, ['operator', 'members', 'remove', '-yes', 's 3'])
  assert.deepEqual([code, out], [0, 'Success! Removed server s 3.\n'])
  assert.deepEqual(
    core.asked.map(({ line }) => line),
    ['DELETE sys/ha/members/s%203'],
  )
  assert.equal((await runAt(core, ['operator', 'members', 'remove'])).code, 2)
})

test('status shows the role and the active server as the stock command does', async (t) => {
  const core = await recordingCore(t)
  const rows = async (seal: object, leader: readonly [number, unknown]) => {
    core.answers = { 'GET agent/ready': [404, {}], 'GET sys/seal-status': [200, seal], 'GET sys/leader': leader }
    const { out } = await runAt(core, ['status'])
    return out.split('\n').filter((line) => /^(?:HA|Active|Raft)/.test(line))
  }
  const cells = async (...given: Parameters<typeof rows>) =>
    (await rows(...given)).map((line) => line.split(/ {2,}/).join(': '))
  assert.deepEqual(await cells(UNSEALED, [200, LEADER]), [
    'HA Enabled: true',
    'HA Cluster: n/a',
    'HA Mode: active',
    'Active Since: 2026-01-02T03:04:05.678Z',
    'Raft Committed Index: 40',
    'Raft Applied Index: 38',
  ])
  const standby = { ...LEADER, is_self: false, leader_cluster_address: 'https://s1:4647', raft_applied_index: 0 }
  assert.deepEqual(await cells(UNSEALED, [200, standby]), [
    'HA Enabled: true',
    'HA Cluster: https://s1:4647',
    'HA Mode: standby',
    'Active Node Address: http://s1:4646',
    'Raft Committed Index: 40',
  ])
  assert.deepEqual((await cells(UNSEALED, [200, { ...standby, leader_address: '' }])).slice(3, 4), [
    'Active Node Address: <none>',
  ])
  assert.deepEqual(await cells({ ...UNSEALED, sealed: true }, [503, { errors: ['Vault is sealed'] }]), [
    'HA Enabled: true',
    'HA Mode: sealed',
  ])
  assert.deepEqual(await cells(UNSEALED, [200, { ha_enabled: false }]), ['HA Enabled: false'])
})

test('members shows role, position and lag of servers that have them', async (t) => {
  const core = await recordingCore(t)
  const server = { ID: '1', Address: 'h:1', Version: '1', HasCore: true, CoreState: 'active', ClusterID: 'c' }
  const active = { ...server, Name: 's1', Status: 'alive', Role: 'active', Position: 120, Lag: 0, IsSelf: true }
  const lost = { ...server, Name: 's2', Status: 'silent', Role: 'lost', Position: 0, Lag: 120, CoreState: '' }
  const other = { ...server, Name: 's3', Status: 'alive', Role: '', HasCore: false, ClusterID: '' }
  core.otherwise = [200, [active, { ...lost, SecondsSinceAnnouncement: 20 }, other]]
  const { code, err, out } = await runAt(core, ['operator', 'members'])
  const lines = out.trimEnd().split('\n')
  assert.deepEqual(
    lines.map((line) => line.trim().split(/ {2,}/)),
    [
      ['Name', 'Address', 'Version', 'Status', 'Core', 'Role', 'Position', 'Lag', 'Cluster ID'],
      ['*', 's1', 'h:1', '1', 'alive', 'active', 'active', '120', '0', 'c'],
      ['s2', 'h:1', '1', 'silent, announced 20s ago', 'unknown', 'lost', '-', '120', 'c'],
      ['s3', 'h:1', '1', 'alive', 'none', '-', '-', '-', '-'],
    ],
  )
  assert.deepEqual([code, err], [1, '1 of 3 servers does not respond\n'])
  core.otherwise = [200, [{ ...other, Name: 's1' }]]
  assert.doesNotMatch((await runAt(core, ['operator', 'members'])).out, /Role|Lag/)
})

test('a command with a command below it keeps its own help and completion', async (t) => {
  const core = await recordingCore(t)
  assert.match((await runAt(core, ['help', 'operator', 'members'])).out, /^Usage: outpost operator members \[options\]/)
  const { out } = await runAt(core, ['completion', 'fish'])
  assert.match(out, /members.*List the servers of the region/)
  assert.match(out, /remove.*Remove a lost server from the cluster/)
  assert.doesNotMatch(out, /Commands of operator members/)
})
