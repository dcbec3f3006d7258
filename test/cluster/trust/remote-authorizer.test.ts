/** An agent that resolves tokens with its servers. */
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

test('configured tokens cause no request, and another token causes one request while its answer is fresh', async () => {
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

test('if no server answers, the cached answer is used until the configured time and not after it', async () => {
  const { clock, server, who } = world()
  assert.equal(await who('t'), 'a-t')
  server.answer = noAnswer
  clock.nowMs += TTL_MS - 1
  assert.equal(await who('t'), 'a-t')
  clock.nowMs += 1
  await assert.rejects(who('t'), { code: 'unavailable' })
  await assert.rejects(who('other'), { code: 'unavailable' })
})

test('with a cache time of 0 s each call causes a request', async () => {
  const { asked, server, who } = world(0)
  assert.equal(await who('t'), 'a-t')
  assert.equal(await who('t'), 'a-t')
  assert.deepEqual(asked, ['t', 't'])
  server.answer = noAnswer
  await assert.rejects(who('t'), { code: 'unavailable' })
})

test('a cached answer is not used after the expiry of the token', async () => {
  const { clock, server, who } = world()
  server.answer = (token) => ({ accessor: `a-${token}`, management: false, policies: [], expiresInMs: 2000 })
  assert.equal(await who('t'), 'a-t')
  server.answer = noAnswer
  clock.nowMs += 1999
  assert.equal(await who('t'), 'a-t')
  clock.nowMs += 1
  await assert.rejects(who('t'), { code: 'unavailable' })
})

test('the duration of the request counts toward the expiry', async () => {
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

test('a token with a limited number of uses causes a request for each call, also for concurrent ones', async () => {
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

test('a cached answer is valid for its client address only', async () => {
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

test('a server that reports a sealed core empties the cache', async () => {
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

test('an answer that was under way when the cache was emptied is not cached', async () => {
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

test('a refused token is refused without a request for a moment, and a revoked token is refused', async () => {
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

test('a recheck causes a request for a cached token, and uses the cached answer if no server answers', async () => {
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
