/** Callers of endless answers are checked again: seldom, together, and ended when their rights are gone. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusal } from '../../src/platform/errors.ts'
import type { Identity } from '../../src/platform/operation.ts'
import { PermissionChecker } from '../../src/http/permission-checker.ts'
import { identity } from '../host/allocations/host-fixture.ts'
import { eventually } from '../helpers/eventually.ts'

function world(resolve: (token: string | undefined) => Identity | Promise<Identity>) {
  const asked: string[] = []
  const rights = new PermissionChecker({
    resolve(token, remote) {
      asked.push(`${token} ${remote}`)
      return resolve(token)
    },
    intervalMs: () => 20,
  })
  const ended: string[] = []
  const keepBy =
    (how: 'keep' | 'keepLong') =>
    (token: string, remote = '10.0.0.1', judge: (found: Identity) => void = () => undefined) => {
      const leave = rights[how](token, remote, {
        renew: judge,
        end(refusal) {
          ended.push(`${token} ${refusal.code}`)
          leave()
        },
      })
      return leave
    }
  return { rights, asked, ended, keep: keepBy('keep'), keepLong: keepBy('keepLong') }
}

test('a thousand followers with one token cost one check, and one that leaves is no longer checked', async () => {
  const { rights, asked, keep } = world(() => identity())
  const leaves = Array.from({ length: 1000 }, () => keep('t'))
  const other = keep('t', '10.0.0.2')
  assert.equal(rights.groups, 2)
  await eventually(() => asked.length >= 6, 'checks')
  const each = (remote: string) => asked.filter((question) => question.endsWith(remote)).length
  assert.ok(Math.abs(each('10.0.0.1') - each('10.0.0.2')) <= 2, 'as often for a thousand as for one')
  for (const leave of leaves) leave()
  other()
  assert.equal(rights.groups, 0)
  const count = asked.length
  await new Promise((resolve) => setTimeout(resolve, 60))
  assert.equal(asked.length, count)
})

test('a follower that leaves does not end the checks of others with the same token', async () => {
  const state = { isRevoked: false }
  const { ended, keep, rights } = world(() => {
    if (state.isRevoked) throw new Refusal('permission_denied', 'Permission denied')
    return identity()
  })
  const leave = keep('kept')
  keep('kept')
  leave()
  assert.equal(rights.groups, 1)
  state.isRevoked = true
  await eventually(() => ended.length === 1, 'the other one is checked')
})

test('each follower checks the new identity for itself, and a refused token ends all of them', async () => {
  const state = { isRevoked: false }
  const { ended, keep, rights } = world(() => {
    if (state.isRevoked) throw new Refusal('permission_denied', 'Permission denied')
    return identity()
  })
  const leave = keep('kept')
  keep('lost', undefined, () => {
    throw new Refusal('permission_denied', 'Permission denied')
  })
  await eventually(() => ended.length === 1, 'one has no right any more')
  assert.deepEqual(ended, ['lost permission_denied'])
  keep('kept')
  state.isRevoked = true
  await eventually(() => ended.length === 3, 'the token was revoked')
  assert.equal(rights.groups, 0)
  leave()
})

test('a check that fails for any other reason ends the response too', async () => {
  const { ended, keep } = world(() => Promise.reject(new Error('out of order')))
  keep('t')
  await eventually(() => ended.length === 1, 'it ends')
  assert.deepEqual(ended, ['t unavailable'])
})

test('finite responses are checked only while they last, after a delay', async () => {
  const state = { isRevoked: false }
  const { asked, ended, keep, keepLong, rights } = world(() => {
    if (state.isRevoked) throw new Refusal('permission_denied', 'Permission denied')
    return identity()
  })
  for (let count = 0; count < 1000; count++) keepLong('short')()
  const leaveLong = keepLong('left')
  keepLong('long')
  keep('endless')
  keepLong('endless')
  await eventually(() => ['left', 'long', 'endless'].every((token) => asked.includes(`${token} 10.0.0.1`)), 'checks')
  assert.equal(rights.groups, 3)
  leaveLong()
  assert.equal(rights.groups, 2)
  assert.ok(!asked.includes('short 10.0.0.1'))
  state.isRevoked = true
  await eventually(() => ended.length === 3, 'all end')
  assert.deepEqual(ended.sort(), ['endless permission_denied', 'endless permission_denied', 'long permission_denied'])
  assert.equal(rights.groups, 0)
})
