/** An agent that asks its servers who a token is. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { createAskingAuthorizer } from '../../src/cluster/asking-authorizer.ts'
import { createAuthorizer, type Grants } from '../../src/cluster/authorizer.ts'
import { Refusal } from '../../src/kit/errors.ts'
import { identity } from '../host/host-fixture.ts'

function world(ttlMs = 60_000) {
  const asked: string[] = []
  const server = { answer: (token: string): Grants => ({ accessor: `a-${token}`, management: false, policies: [] }) }
  const grants = { accessor: 'own', management: false, policies: [] }
  const sha256 = createHash('sha256').update('own-token').digest('hex')
  const tokens = [{ name: 'own', sha256, identity: { ...identity(), accessor: 'own' }, grants }]
  const own = createAuthorizer({ enabled: true, tokens, anonymous: { ...identity(), accessor: 'anonymous' } })
  const authorizer = createAskingAuthorizer({
    own,
    ttlMs,
    async ask(token) {
      asked.push(token)
      return server.answer(token)
    },
    identityOf: ({ accessor }) => ({ ...identity(), accessor }),
  })
  const who = async (token: string | undefined) => (await authorizer.resolve(token)).accessor
  return { asked, server, who }
}

const nobodyAnswers = () => {
  throw new Refusal('no_answer', 'nobody')
}

test('own tokens and none are not asked about, others once for a while, at the same time once too', async () => {
  const { asked, who } = world()
  assert.equal(await who(undefined), 'anonymous')
  assert.equal(await who(''), 'anonymous')
  assert.equal(await who('own-token'), 'own')
  assert.deepEqual(asked, [])
  assert.deepEqual(await Promise.all([who('t'), who('t'), who('t')]), ['a-t', 'a-t', 'a-t'])
  assert.equal(await who('t'), 'a-t')
  assert.deepEqual(asked, ['t'])
})

test('what was heard last counts while no server answers; what was never heard is 503', async () => {
  const { server, who } = world(0)
  assert.equal(await who('t'), 'a-t')
  server.answer = nobodyAnswers
  assert.equal(await who('t'), 'a-t')
  await assert.rejects(who('other'), { code: 'unavailable' })
})

test('a refused token is refused at once for a moment, and a token that is taken back is refused', async () => {
  const { asked, server, who } = world(0)
  assert.equal(await who('t'), 'a-t')
  server.answer = () => {
    throw new Refusal('permission_denied', 'Permission denied')
  }
  await assert.rejects(who('t'), { code: 'permission_denied' })
  await assert.rejects(who('t'), { code: 'permission_denied' })
  assert.deepEqual(asked, ['t', 't'])
  server.answer = nobodyAnswers
  await assert.rejects(who('t'), { code: 'permission_denied' })
})
