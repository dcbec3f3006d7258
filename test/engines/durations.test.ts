/** Durations as callers write them: what becomes 0 without being 0 is refused, since 0 means the default, or for ever. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { FieldError, secondsOf, signedDuration } from '../../src/engines/framework/fields.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

test('truncates fractions of a second and refuses less than a second', () => {
  for (const [given, seconds] of [
    ['1.9s', 1],
    ['1500ms', 1],
    ['1s', 1],
    ['0', 0],
    ['0s', 0],
    ['0.0h', 0],
    ['', 0],
    [null, 0],
    [0, 0],
    [90.5, 90],
    ['1d', 86_400],
  ] as const) {
    assert.equal(secondsOf(given), seconds, JSON.stringify(given))
  }
  for (const given of ['999ms', '0.5s', '1ns', '0.0001h', 0.5, '-1ms', -0.2]) {
    assert.throws(() => secondsOf(given), FieldError, JSON.stringify(given))
  }
  const signed = signedDuration('')
  assert.equal(signed.read('-1s'), -1)
  assert.throws(() => signed.read('-500ms'), FieldError)
})

test('no endpoint accepts half a second as the default or as unlimited', async (t) => {
  const world = await CoreWorld.open(t, { engines: [quickUserpass, approle, kv] })
  for (const type of ['userpass', 'approle']) await world.ask('POST', `sys/auth/${type}`, { type })
  await world.ask('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
  const half = '500ms'
  for (const [path, body] of [
    ['auth/userpass/users/a', { password: 'x', token_ttl: half }],
    ['auth/userpass/users/a', { password: 'x', token_period: half }],
    ['auth/userpass/users/a', { password: 'x', token_explicit_max_ttl: half }],
    ['auth/approle/role/a', { secret_id_ttl: half }],
    ['auth/token/create', { ttl: half }],
    ['auth/token/create', { explicit_max_ttl: half }],
    ['auth/token/create', { period: half }],
    ['auth/token/roles/a', { token_period: half }],
    ['sys/mounts/kv/tune', { default_lease_ttl: half }],
    ['sys/auth/userpass/tune', { user_lockout_config: { lockout_duration: half } }],
    ['sys/policies/acl/a', { policy: '', ttl: half }],
    ['kv/config', { delete_version_after: half }],
    ['kv/metadata/a', { delete_version_after: half }],
    ['sys/mfa/method/totp/a', { issuer: 'x', period: half }],
    ['sys/quotas/rate-limit/a', { rate: 1, block_interval: half }],
  ] as const) {
    const { status, text } = await world.ask('POST', path, body)
    assert.equal(status, 400, `${path} ${JSON.stringify(body)}: ${text}`)
    assert.match(text, /at least a second/, path)
  }
})
