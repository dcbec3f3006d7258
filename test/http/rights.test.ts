/** Callers of endless answers are checked again: seldom, together, and ended when their rights are gone. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusal } from '../../src/kit/errors.ts'
import type { Identity } from '../../src/kit/operation.ts'
import { Rights } from '../../src/http/rights.ts'
import { identity } from '../host/host-fixture.ts'
import { eventually } from '../helpers/eventually.ts'

function world(resolve: (token: string | undefined) => Identity | Promise<Identity>) {
  const asked: string[] = []
  const rights = new Rights({
    resolve(token, remote) {
      asked.push(`${token} ${remote}`)
      return resolve(token)
    },
    intervalMs: () => 20,
  })
  const ended: string[] = []
  const keep = (token: string, remote = '10.0.0.1', judge: (found: Identity) => void = () => undefined) => {
    const leave = rights.keep(token, remote, {
      renew: judge,
      end(refusal) {
        ended.push(`${token} ${refusal.code}`)
        leave()
      },
    })
    return leave
  }
  return { rights, asked, ended, keep }
}

test('a thousand followers with one token are one question, and one that leaves is asked about no more', async () => {
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

test('each judges the identity for itself; a token that is refused ends all of its group', async () => {
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

test('a check that fails for any other reason ends the answer too', async () => {
  const { ended, keep } = world(() => Promise.reject(new Error('out of order')))
  keep('t')
  await eventually(() => ended.length === 1, 'it ends')
  assert.deepEqual(ended, ['t unavailable'])
})
