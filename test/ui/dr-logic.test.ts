/** Logic of the replication view: the sentence, the checks before a change of roles, and the operation token. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Check } from '../../ui/views/dr/checks.ts'
import { demotionChecks, failoverChecks, hasFailed, switchChecks } from '../../ui/views/dr/checks.ts'
import { type DrReport, type DrStatus, type Peer, shortDuration, webAddress } from '../../ui/views/dr/dr-status.ts'
import { handoverProblem, handoverText, nextStep } from '../../ui/views/dr/handover.ts'
import { HISTORY_MAX, LagHistory } from '../../ui/views/dr/lag-history.ts'
import { decodeToken, keptShares, randomOtp } from '../../ui/views/dr/operation-token.ts'
import { drSummary } from '../../ui/views/dr/summary.ts'
import { coreRole, sealSummary } from '../../ui/views/seal/unsealing.ts'

const PEER: Peer = {
  node_id: 'berlin',
  api_address: 'https://berlin:4646',
  cluster_address: 'https://berlin:4647',
  connection_status: 'connected',
  clock_skew_ms: '12',
  last_heartbeat: '2026-11-28T14:00:00Z',
  last_heartbeat_duration_ms: '1',
  replication_primary_canary_age_ms: '400',
  lag_entries: 0,
  lag_seconds: 0,
  is_whole: true,
  authenticated: true,
}
const ROOT = '0123456789abcdef0123456789abcdef'

function reportOf(status: DrStatus, sealed = false): DrReport {
  return { status, health: { sealed, version: '0.1.0' }, readAtMs: 1 }
}

function primary(peer: Partial<Peer> = {}, more: Partial<DrStatus> = {}): DrReport {
  return reportOf({ mode: 'primary', state: 'running', epoch: 1, secondaries: [{ ...PEER, ...peer }], ...more })
}

function secondary(more: Partial<DrStatus> = {}, sealed = false): DrReport {
  const { node_id: _id, ...peer } = PEER
  const base = { mode: 'secondary', state: 'stream-wals', lag_entries: 0, primaries: [peer] }
  return reportOf({ ...base, ...more }, sealed)
}

const resultsOf = (checks: readonly Check[]) => checks.map(({ result }) => result)

test('a healthy primary and a healthy secondary say so', () => {
  assert.deepEqual(drSummary(primary()), { kind: 'good', text: 'Healthy: berlin is connected, no lag.' })
  assert.equal(drSummary(secondary()).kind, 'good')
})

test('one entry is not several', () => {
  assert.match(drSummary(primary({ lag_entries: 1 })).text, /, 1 entry behind/)
  assert.match(failoverChecks(secondary({ lag_entries: 1 }))[1]?.text ?? '', /^1 entry behind/)
})

test('the sentence of a primary names the worst problem', () => {
  const cases: readonly (readonly [DrReport, 'warning' | 'bad', RegExp])[] = [
    [primary({ connection_status: 'disconnected', disconnected_seconds: 90 }), 'bad', /berlin disconnected 1m 30s ago/],
    [primary({ is_whole: false }), 'warning', /initial sync/],
    [primary({ authenticated: false }), 'warning', /berlin is sealed/],
    [primary({ lag_entries: 2000 }), 'warning', /lacks 2,000 entries/],
    [primary({ clock_skew_ms: '-40000' }), 'warning', /differ by -40 s/],
    [primary({}, { sync: 'degraded' }), 'warning', /Degraded/],
    [primary({}, { secondaries: [] }), 'warning', /no secondary/],
    [primary({}, { state: 'fenced', fence_detail: 'no message' }), 'bad', /Fenced.*no message/],
    [primary({}, { trouble: 'a cluster claims to have replaced this primary' }), 'bad', /^Trouble: a cluster claims/],
    [primary({}, { state: 'fenced', replaced_by: 'https://b' }), 'bad', /https:\/\/b was promoted/],
    [reportOf({ mode: 'disabled' }), 'warning', /Not replicated/],
  ]
  for (const [report, kind, text] of cases) {
    const summary = drSummary(report)
    assert.equal(summary.kind, kind, summary.text)
    assert.match(summary.text, text)
  }
})

test('the sentence of a secondary says whether it can be promoted', () => {
  assert.match(drSummary(secondary({ state: 'idle', trouble: 'connection refused' })).text, /connection refused/)
  assert.equal(drSummary(secondary({}, true)).kind, 'warning')
  assert.match(drSummary(secondary({ mode: 'bootstrapping' })).text, /cannot be promoted/)
  assert.match(drSummary(secondary({ primaries: [], state: 'idle' })).text, /Demoted/)
})

test('a failover is checked as by the command', () => {
  assert.deepEqual(resultsOf(failoverChecks(secondary())), ['passed', 'passed', 'passed', 'warning'])
  const lost = failoverChecks(secondary({ state: 'idle', trouble: 'refused', lag_entries: 3 }))
  assert.deepEqual(resultsOf(lost), ['passed', 'warning', 'passed', 'open'])
  assert.equal(hasFailed(lost), false)
  assert.ok(hasFailed(failoverChecks(secondary({}, true))), 'a sealed secondary')
  assert.ok(hasFailed(failoverChecks(secondary({ mode: 'bootstrapping' }))), 'an incomplete copy')
  assert.ok(hasFailed(failoverChecks(primary())), 'a primary')
  assert.match(failoverChecks(secondary({ lag_entries: null }))[1]?.text ?? '', /unknown/)
})

test('a planned switch is checked as by the command', () => {
  assert.equal(hasFailed(switchChecks(primary(), 'berlin', true)), false)
  const failing: readonly (readonly [string, DrReport, boolean])[] = [
    ['disconnected', primary({ connection_status: 'disconnected' }), true],
    ['incomplete', primary({ is_whole: false }), true],
    ['sealed', primary({ authenticated: false }), true],
    ['behind', primary({ lag_entries: 1001 }), true],
    ['clocks', primary({ clock_skew_ms: '300001' }), true],
    ['fenced', primary({}, { state: 'fenced' }), true],
    ['unknown', primary({ node_id: 'paris' }), true],
    ['rights', primary(), false],
  ]
  for (const [why, report, mayDemote] of failing) assert.ok(hasFailed(switchChecks(report, 'berlin', mayDemote)), why)
})

test('a permission that the server has not returned is not denied', () => {
  const checks = switchChecks(primary(), 'berlin', undefined)
  assert.equal(checks.find(({ title }) => title.startsWith('Your token'))?.result, 'open')
  assert.equal(hasFailed(checks), false)
})

test('a fenced primary can be demoted, and the commits that the new primary lacks are named', () => {
  const replaced = {
    state: 'fenced',
    fence_reason: 'replaced',
    fence_detail: 'replaced by "berlin" at https://berlin:4646',
    replaced_by: 'https://berlin:4646',
    fenced_by: 'berlin',
  }
  const checks = demotionChecks(
    primary({ connection_status: 'disconnected', lag_entries: 3, last_acknowledged_wal: 40 }, replaced),
  )
  assert.equal(hasFailed(checks), false)
  assert.deepEqual(resultsOf(checks), ['passed', 'warning', 'open'])
  assert.match(checks[0]?.text ?? '', /replaced by "berlin" at https:\/\/berlin:4646/)
  assert.match(checks[1]?.text ?? '', /has not acknowledged the last 3 commits.*moved to a file/)
  assert.deepEqual(resultsOf(demotionChecks(primary({ last_acknowledged_wal: 43 }, replaced))), [
    'passed',
    'passed',
    'open',
  ])
  const restarted = demotionChecks(primary({ last_acknowledged_wal: 0, lag_entries: 43 }, replaced))
  assert.equal(restarted[1]?.result, 'open', 'the position is unknown after a restart')
  const byOther = { ...replaced, fenced_by: 'paris', replaced_by: 'https://tokyo:4646' }
  assert.match(demotionChecks(primary({}, byOther))[1]?.text ?? '', /cannot know it.*moved to a file/)
})

test('an isolated primary warns that no other promotion is known', () => {
  const isolated = { state: 'fenced', fence_reason: 'isolated', fence_detail: 'no heartbeat from a secondary for 40 s' }
  const checks = demotionChecks(primary({}, isolated))
  assert.deepEqual(resultsOf(checks), ['warning', 'open', 'open'])
  assert.match(checks[0]?.text ?? '', /no heartbeat from a secondary for 40 s/)
})

test('after a planned switch the old primary is not to be demoted again', () => {
  assert.doesNotMatch(nextStep(true), /demote it/)
  assert.match(nextStep(false), /demote it on its page/)
})

test('a secondary is promoted in a planned switch only with the entries of the old primary', () => {
  const state = { mode: 'secondary', position: 41, merkle_root: ROOT }
  assert.equal(handoverText(state), '41-0123456789abcdef')
  assert.equal(handoverProblem('', state), undefined)
  assert.equal(handoverProblem(' 41-0123456789abcdef\n', state), undefined)
  assert.match(handoverProblem('42-0123456789abcdef', state) ?? '', /41 of 42/)
  assert.match(handoverProblem('41-ffffffffffffffff', state) ?? '', /entries of this server differ/)
  assert.match(handoverProblem('s.token', state) ?? '', /not the state/)
})

test('an operation token is decoded with its one-time password', () => {
  const [otp, token] = ['Ab3dEf', 's.tok1']
  const encoded = Buffer.from(token.split('').map((char, at) => char.charCodeAt(0) ^ otp.charCodeAt(at)))
  assert.equal(decodeToken(encoded.toString('base64'), otp), token)
  assert.equal(decodeToken(encoded.toString('base64').replaceAll('=', ''), otp), token)
  assert.match(randomOtp(300), /^[0-9A-Za-z]{300}$/)
  assert.notEqual(randomOtp(24), randomOtp(24))
})

test('after a refused share, the shares that the server has kept are kept', () => {
  const status = { nonce: 'n', started: true, progress: 1, required: 3 }
  assert.deepEqual(keptShares(status, 'n'), { progress: 1, required: 3 })
  assert.equal(keptShares({ ...status, nonce: '', started: false, progress: 0 }, 'n'), undefined)
  assert.equal(keptShares(status, 'other'), undefined)
})

test('the history keeps a limited number of measurements, and a gap where a peer is unknown', () => {
  const history = new LagHistory()
  history.add(1000, new Map([['a', 1]]))
  history.add(1000, new Map([['a', 9]]))
  history.add(
    2000,
    new Map([
      ['a', 2],
      ['b', null],
    ]),
  )
  assert.deepEqual(history.series, {
    names: ['a', 'b'],
    data: [
      [1, 2],
      [1, 2],
      [null, null],
    ],
  })
  for (let at = 0; at < HISTORY_MAX; at++) history.add(3000 + at, new Map([['a', at]]))
  assert.equal(history.length, HISTORY_MAX)
})

test('durations are short, and only web addresses become links', () => {
  assert.deepEqual([35, -12_000, 320_000, 7_500_000, 90_000_000].map(shortDuration), [
    '35 ms',
    '-12 s',
    '5m 20s',
    '2h 5m',
    '1d 1h',
  ])
  assert.equal(webAddress('https://berlin:4646/x?y'), 'https://berlin:4646/ui/dr')
  for (const address of ['javascript:alert(1)', 'data:text/html,x', '', 'berlin']) {
    assert.equal(webAddress(address), undefined)
  }
})

test('the sentence of the seal counts the missing key shares', () => {
  const status = { initialized: true, sealed: true, t: 3, n: 5, progress: 2, type: 'shamir' }
  assert.match(sealSummary(status, 'serving').text, /one more key share\./)
  assert.match(sealSummary({ ...status, progress: 0 }, 'serving').text, /3 more key shares/)
  assert.equal(sealSummary({ ...status, sealed: false }, 'serving').kind, 'good')
  assert.match(sealSummary({ ...status, initialized: false }, 'serving').text, /not initialized/)
})

test('the sentence of the seal does not claim that a secondary or a fenced primary serves requests', () => {
  const status = { initialized: true, sealed: false, t: 3, n: 5, progress: 0, type: 'shamir' }
  assert.match(sealSummary(status, coreRole({ replication_dr_mode: 'disabled' })).text, /unsealed and serves requests/)
  for (const health of [{ replication_dr_mode: 'secondary' }, { replication_dr_mode: 'primary', fenced: true }]) {
    assert.match(sealSummary(status, coreRole(health)).text, /serves no requests/)
  }
})
