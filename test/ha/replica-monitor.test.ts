/** Which NATS servers do not store the commit stream, by the answer of its leader. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isFromLeader, missingReplicas } from '../../src/ha/replica-monitor.ts'

const CURRENT = { name: 'n1', current: true, offline: false, active: 500_000, lag: 0 }

function reasons(...replicas: readonly object[]) {
  const cluster = {
    name: 'c',
    leader: 'n0',
    raft_group: 'g',
    replicas: replicas.map((more) => ({ ...CURRENT, ...more })),
  }
  return missingReplicas({ cluster }).map(({ reason, server }) => `${server}: ${reason}`)
}

test('replicas that are offline, behind or silent are missing, current ones are not', () => {
  assert.deepEqual(reasons({}, { name: 'n2', lag: 3 }), [])
  assert.deepEqual(reasons({ offline: true, current: false }), ['n1: offline'])
  assert.deepEqual(reasons({ current: false, lag: 1 }), [], 'a busy replica')
  assert.deepEqual(reasons({}, { name: 'n2', current: false, lag: 8120 }), ['n2: 8120 messages behind'])
  assert.deepEqual(reasons({ current: false, active: 0, lag: 9 }), ['n1: no contact'])
  assert.deepEqual(reasons({ current: false, active: 12_400_000_000 }), ['n1: no contact for 12 s'])
})

test('only the leader of a stream knows its replicas', () => {
  assert.equal(isFromLeader({ cluster: { name: 'c', raft_group: 'g', leader: 'n0', replicas: [] } }), true)
  assert.equal(isFromLeader({ cluster: { name: 'c', raft_group: 'g', leader: '', replicas: [] } }), false)
  assert.equal(isFromLeader({}), true, 'a NATS server without a cluster')
})

test('a stream with one replica misses none', () => {
  assert.deepEqual(missingReplicas({}), [])
})
