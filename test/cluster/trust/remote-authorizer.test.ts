/** An agent that asks its servers who a token belongs to. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { createRemoteAuthorizer } from '../../../src/cluster/trust/remote-authorizer.ts'
import { createAuthorizer } from '../../../src/cluster/trust/authorizer.ts'
import type { Grants } from '../../../src/platform/operation.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { identity } from '../../host/allocations/host-fixture.ts'

const FRESH_MS = 5000
const TTL_MS = 30_000

function world(ttlMs = TTL_MS) {
  const asked: string[] = []
  const clock = { nowMs: 1000 }
  const server = {
    answer: (token: string, _remote?: string): Grants | Promise<Grants> => {
      return { accessor: `a-${token}`, management: false, policies: [] }
    },
  }
  const grants = { accessor: 'own', management: false, policies: [] }
  const sha256 = createHash('sha256').update('own-token').digest('hex')
  const tokens = [{ name: 'own', sha256, identity: { ...identity(), accessor: 'own' }, grants }]
  const own = createAuthorizer({ enabled: true, tokens, anonymous: { ...identity(), accessor: 'anonymous' } })
  const authorizer = createRemoteAuthorizer({
    local: own,
    freshMs: FRESH_MS,
    ttlMs,
    now: () => clock.nowMs,
    async ask(token, remote, again) {
      asked.push(again ? `${token} again` : token)
      return await server.answer(token, remote)
    },
    identityOf: ({ accessor }) => ({ ...identity(), accessor }),
  })
  const who = async (token: string | undefined) => (await authorizer.resolve(token)).accessor
  return { asked, authorizer, clock, server, who }
}

const noAnswer = () => {
  throw new Refusal('no_answer', 'nobody')
}
const unknownToken = () => {
  throw new Refusal('permission_denied', 'Permission denied')
}
const sealedCore = () => {
  throw new Refusal('sealed', 'Vault is sealed')
}

test('own tokens and none are not asked about, others once for a while, at the same time once too', async () => {
  const { asked, clock, who } = world()
  assert.equal(await who(undefined), 'anonymous')
  assert.equal(await who(''), 'anonymous')
  assert.equal(await who('own-token'), 'own')
  assert.deepEqual(asked, [])
  assert.deepEqual(await Promise.all([who('t'), who('t'), who('t')]), ['a-t', 'a-t', 'a-t'])
  clock.nowMs += FRESH_MS - 1
  assert.equal(await who('t'), 'a-t')
  assert.deepEqual(asked, ['t'])
  clock.nowMs += 1
  assert.equal(await who('t'), 'a-t')
  assert.deepEqual(asked, ['t', 't'])
})

test('while no server answers, the last answer is used for the time that is configured, and then no more', async () => {
  const { clock, server, who } = world()
  assert.equal(await who('t'), 'a-t')
  server.answer = noAnswer
  clock.nowMs += TTL_MS - 1
  assert.equal(await who('t'), 'a-t')
  clock.nowMs += 1
  await assert.rejects(who('t'), { code: 'unavailable' })
  await assert.rejects(who('other'), { code: 'unavailable' })
})

test('with a memory of 0 s each call is a question', async () => {
  const { asked, server, who } = world(0)
  assert.equal(await who('t'), 'a-t')
  assert.equal(await who('t'), 'a-t')
  assert.deepEqual(asked, ['t', 't'])
  server.answer = noAnswer
  await assert.rejects(who('t'), { code: 'unavailable' })
})

test('an answer is never used past the expiry of the token', async () => {
  const { clock, server, who } = world()
  server.answer = (token) => ({ accessor: `a-${token}`, management: false, policies: [], expiresInMs: 2000 })
  assert.equal(await who('t'), 'a-t')
  server.answer = noAnswer
  clock.nowMs += 1999
  assert.equal(await who('t'), 'a-t')
  clock.nowMs += 1
  await assert.rejects(who('t'), { code: 'unavailable' })
})

test('the time that the answer took counts towards the expiry', async () => {
  const { clock, server, who } = world()
  server.answer = (token) => {
    clock.nowMs += 1500
    return { accessor: `a-${token}`, management: false, policies: [], expiresInMs: 2000 }
  }
  assert.equal(await who('t'), 'a-t')
  server.answer = noAnswer
  clock.nowMs += 500
  await assert.rejects(who('t'), { code: 'unavailable' })
})

test('a token with a limited number of uses is asked for each time, also by calls at the same time', async () => {
  const { asked, server, who } = world()
  let uses = 2
  server.answer = async (token) => {
    await Promise.resolve()
    if (uses-- <= 0) return unknownToken()
    return { accessor: `a-${token}`, management: false, policies: [], isUseLimited: true }
  }
  const outcomes = await Promise.allSettled([who('t'), who('t'), who('t'), who('t'), who('t')])
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 2)
  assert.equal(asked.length >= 3, true)
  uses = 2
  asked.length = 0
  assert.deepEqual([await who('u'), await who('u')], ['a-u', 'a-u'])
  assert.deepEqual(asked, ['u', 'u'])
  server.answer = noAnswer
  await assert.rejects(who('u'), { code: 'unavailable' }, 'nothing of it is remembered')
})

test('an answer counts for the address that it was asked for', async () => {
  const { asked, authorizer, server } = world()
  const near = '10.1.2.3'
  server.answer = (token, remote) =>
    remote === near ? { accessor: `a-${token}`, management: false, policies: [] } : unknownToken()
  const from = async (remote: string | undefined) => (await authorizer.resolve('t', remote)).accessor
  assert.deepEqual([await from(near), await from(near)], ['a-t', 'a-t'])
  await assert.rejects(from('10.2.0.1'), { code: 'permission_denied' })
  await assert.rejects(from(undefined), { code: 'permission_denied' })
  assert.deepEqual(asked, ['t', 't', 't'], 'an address, another one, and none')
  assert.equal(await from(near), 'a-t', 'refused elsewhere, good here')
  assert.equal((await authorizer.recheck('t', near)).accessor, 'a-t')
  await assert.rejects(async () => authorizer.recheck('t', '10.2.0.1'), { code: 'permission_denied' })
  server.answer = noAnswer
  assert.equal((await authorizer.recheck('t', near)).accessor, 'a-t')
  await assert.rejects(from('10.3.0.1'), { code: 'unavailable' }, 'what is remembered is for the other address')
})

test('nothing is remembered once a server has said that the core is sealed, of no token', async () => {
  const { clock, server, who } = world()
  assert.equal(await who('t'), 'a-t')
  assert.equal(await who('u'), 'a-u')
  server.answer = sealedCore
  clock.nowMs += FRESH_MS
  await assert.rejects(who('t'), { code: 'sealed' })
  server.answer = noAnswer
  await assert.rejects(who('t'), { code: 'unavailable' })
  await assert.rejects(who('u'), { code: 'unavailable' })
})

test('an answer that was on its way when the core was sealed is not remembered', async () => {
  const { asked, authorizer, server, who } = world()
  server.answer = (token) => {
    authorizer.clear()
    return { accessor: `a-${token}`, management: false, policies: [] }
  }
  assert.equal(await who('t'), 'a-t')
  server.answer = sealedCore
  await assert.rejects(who('t'), { code: 'sealed' })
  assert.deepEqual(asked, ['t', 't'])
})

test('a refused token is refused at once for a moment, and a token that is revoked is refused', async () => {
  const { asked, clock, server, who } = world()
  assert.equal(await who('t'), 'a-t')
  server.answer = unknownToken
  clock.nowMs += FRESH_MS
  await assert.rejects(who('t'), { code: 'permission_denied' })
  await assert.rejects(who('t'), { code: 'permission_denied' })
  assert.deepEqual(asked, ['t', 't'])
  server.answer = noAnswer
  await assert.rejects(who('t'), { code: 'permission_denied' })
})

test('a recheck asks a server, whatever is remembered; while none answers, what is remembered counts for its time', async () => {
  const { asked, authorizer, clock, server, who } = world()
  const again = async (token: string) => (await authorizer.recheck(token)).accessor
  assert.equal(await who('t'), 'a-t')
  assert.equal(await again('t'), 'a-t')
  assert.deepEqual(asked, ['t', 't again'])
  assert.equal(await again('own-token'), 'own')
  server.answer = noAnswer
  assert.equal(await again('t'), 'a-t')
  clock.nowMs += TTL_MS
  await assert.rejects(again('t'), { code: 'unavailable' })
  server.answer = unknownToken
  await assert.rejects(again('t'), { code: 'permission_denied' })
  await assert.rejects(who('t'), { code: 'permission_denied' })
})
