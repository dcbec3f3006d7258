/** What operators see of the members: roles by the lease, and the state of a new one. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberOf } from '../../src/daemon/modules/ha.ts'
import { MEMBER_LOST_MS } from '../../src/ha/lease/lease.ts'
import { notInitialised } from '../../src/daemon/monitoring/readiness.ts'
import type { MemberState } from '../../src/ha/lease/lease.ts'

const LISTED_BY = { activeRow: 10, holder: 'id-s2', own: 'id-s3' }

function stateOf(name: string, more: Partial<MemberState> = {}): MemberState {
  const atMs = Date.now()
  return {
    name,
    serverId: `id-${name}`,
    apiAddress: '',
    clusterAddress: '',
    version: '1',
    state: 'standby',
    row: 8,
    applied: 0,
    snapshotAtMs: 0,
    atMs,
    ...more,
  }
}

test('the lease decides which member is active, not the last report of a server', () => {
  const roleOf = (state: MemberState) => memberOf(state, LISTED_BY).role
  assert.equal(roleOf(stateOf('s1', { state: 'active' })), 'standby', 'killed a moment ago')
  assert.equal(roleOf(stateOf('s2')), 'active', 'has taken over since its report')
  assert.equal(roleOf(stateOf('s2', { state: 'sealed' })), 'sealed')
  assert.equal(roleOf(stateOf('s2', { state: 'active', atMs: Date.now() - MEMBER_LOST_MS - 1000 })), 'lost')
  const { isSelf, lag } = memberOf(stateOf('s3'), LISTED_BY)
  assert.deepEqual([isSelf, lag], [true, 2])
})

test('a new member is not told to give up its core or to be initialized', () => {
  const other = 'server "s1" has the secrets core of this region, next: set server { secrets = false }'
  assert.equal(notInitialised(false, other), `not initialized, ${other}`)
  assert.match(notInitialised(true, other), /copying the entries of another server, next: outpost operator unseal/)
  assert.match(notInitialised(true, undefined), /next: outpost operator init$/)
})
