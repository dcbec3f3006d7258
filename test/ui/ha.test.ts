/** What the web interface says about the servers of a highly available core. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type HaMember, haSummary, isServerOfPage, serverState, shownRole } from '../../ui/views/status/ha.ts'

function member(name: string, role: string, over: Partial<HaMember> = {}): HaMember {
  const address = `https://${name}:4646`
  return {
    name,
    role,
    api_address: address,
    version: '0.1.0',
    position: 7,
    lag: 0,
    last_seen: '',
    is_self: false,
    ...over,
  }
}

function summary(isActive: boolean, ...members: HaMember[]): string {
  const active = members.find(({ role }) => role === 'active')
  const { kind, text } = haSummary({ activeAddress: active?.api_address ?? '', isActive, members })
  return `${kind}: ${text}`
}

test('the summary says which server is active, and whether another one would take over', () => {
  const [s1, s2] = [member('s1', 'active'), member('s2', 'standby')]
  assert.equal(summary(true, s1, s2, member('s3', 'standby')), 'good: This server is active, 2 could take over.')
  assert.equal(summary(false, s1, s2), 'good: s1 is active; this server forwards requests to it, 1 could take over.')
  assert.match(summary(true, s1, s2, member('s3', 'lost')), /^warning: .*1 could take over.*s3 is lost/)
  assert.match(summary(true, s1, member('s2', 'standby', { lag: 5000 })), /^warning: .*s2 lacks 5000 commits/)
  assert.match(summary(true, s1, member('s2', 'sealed')), /^bad: .*No other server could take over: s2 is sealed/)
  assert.match(summary(false, s2, member('s3', 'standby')), /^bad: No server is active/)
})

test('without the right to list the servers, only the active one is named', () => {
  const known = { activeAddress: 'https://s1:4646', members: undefined }
  assert.equal(
    haSummary({ ...known, isActive: false }).text,
    'https://s1:4646 is active; this server forwards requests to it.',
  )
  assert.equal(haSummary({ ...known, activeAddress: '', isActive: false }).kind, 'bad')
})

test('the server of the page is marked, also if the active server has answered for it', () => {
  const [active, standby] = [member('s1', 'active', { is_self: true }), member('s2', 'standby')]
  assert.deepEqual(
    [active, standby].map((each) => isServerOfPage(each, true, 's1:4646')),
    [true, false],
  )
  assert.deepEqual(
    [active, standby].map((each) => isServerOfPage(each, false, 's2:4646')),
    [false, true],
  )
  assert.equal(isServerOfPage({ ...standby, api_address: 'no address' }, false, 's2:4646'), false)
})

test('the first line does not call a standby active, and says nothing while the role is not known', () => {
  const known = { activeAddress: 'https://s1:4646', members: undefined }
  assert.match(shownRole('active', { ...known, isActive: false }, true), /^standby that forwards/)
  assert.equal(shownRole('active', { ...known, isActive: true }, true), 'active')
  assert.equal(shownRole('active', undefined, true), 'active', 'without high availability')
  assert.equal(shownRole('active', undefined, false), '')
  assert.equal(shownRole('fenced', undefined, false), 'fenced')
})

test('the list of servers does not contradict the members of the core', () => {
  const announced = { Name: 's3', Address: 's3:4646', Status: 'alive', CoreState: 'active' }
  const lost = [member('s1', 'active'), member('s3', 'lost')]
  assert.deepEqual(serverState(announced, lost), { status: 'lost', core: 'lost' })
  assert.deepEqual(serverState(announced, [member('s3', 'standby')]), { status: 'alive', core: 'standby' })
  assert.deepEqual(serverState(announced, undefined), { status: 'alive', core: 'active' })
  const standby = { ...announced, CoreState: 'ha_standby' }
  assert.equal(serverState(standby, [member('s1', 'active')]).core, 'standby')
})
