import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CidrRanges } from '../../src/engines/framework/cidr.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { make } from './token-world.ts'

test('address ranges match IPv4, IPv6 and mapped addresses', () => {
  const rows: [string, string | undefined, boolean][] = [
    ['10.0.0.0/8', '10.255.0.1', true],
    ['10.0.0.0/8', '11.0.0.1', false],
    ['10.1.2.3', '10.1.2.3', true],
    ['10.1.2.3', '10.1.2.4', false],
    ['10.1.2.3/32', '::ffff:10.1.2.3', true],
    ['::ffff:10.0.0.0/104', '10.9.9.9', true],
    ['::ffff:10.1.2.3', '10.1.2.3', true],
    ['0.0.0.0/0', '8.8.8.8', true],
    ['0.0.0.0/0', '2001:db8::1', false],
    ['::/0', '2001:db8::1', true],
    ['2001:db8::/32', '2001:db8:ffff::1', true],
    ['2001:db8::/32', '2001:db9::1', false],
    ['fe80::/10', 'fe80::1%eth0', true],
    ['::1', '::1', true],
    ['::1', '0:0:0:0:0:0:0:1', true],
    ['127.0.0.1', '::1', false],
    ['10.0.0.0/8', undefined, false],
    ['10.0.0.0/8', 'somewhere', false],
  ]
  for (const [range, address, wanted] of rows) {
    assert.equal(new CidrRanges([range]).includes(address), wanted, `${range} ${address}`)
  }
  for (const wrong of [
    '10.0.0.0/33',
    '::/129',
    '10.0.0',
    'x',
    '',
    '/8',
    '10.0.0.0/',
    '10.0.0.0/-1',
    '::ffff:1.2.3.4/8',
  ]) {
    assert.throws(() => new CidrRanges([wrong]), /bound CIDRs/, wrong)
  }
})

test('a bound token is valid from its addresses only, and so are its children and orphans', async (t) => {
  const world = await CoreWorld.open(t)
  await world.ask('PUT', 'sys/policies/acl/maker', { policy: 'path "auth/token/*" { capabilities = ["update"] }' })
  await world.ask('POST', 'auth/token/roles/r', { token_bound_cidrs: '10.0.0.0/8,::1', allowed_policies: 'maker' })
  const bound = await make(world, {}, undefined, 'create/r')
  const statusOf = async (token: string, remote: string) =>
    (await world.ask('GET', 'auth/token/lookup-self', undefined, { token, remote })).status
  const from = { token: bound.token, remote: '10.1.1.1' }
  const child = await world.ask('POST', 'auth/token/create', {}, from)
  const orphan = await world.ask('POST', 'auth/token/create-orphan', {}, from)
  const batch = await world.ask('POST', 'auth/token/create', { type: 'batch' }, from)
  const tokens = [child, orphan, batch].map(({ body }) => String(body.auth['client_token']))
  for (const token of [bound.token, ...tokens]) {
    assert.equal(await statusOf(token, '10.2.2.2'), 200)
    assert.equal(await statusOf(token, '::1'), 200)
    assert.equal(await statusOf(token, '11.0.0.1'), 403)
    assert.equal(await statusOf(token, '127.0.0.1'), 403)
  }
  const told = await world.ask('POST', 'auth/token/lookup', { token: bound.token })
  assert.deepEqual(told.body.data['bound_cidrs'], ['10.0.0.0/8', '::1'])
})
