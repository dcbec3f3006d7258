/** Callers of hosts while no server of an HA cluster is active. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  type Authorizer,
  createAuthorizer,
  createCoreAuthorizer,
  createHeldAuthorizer,
  createMemberAuthorizer,
} from '../../../src/cluster/trust/authorizer.ts'
import { createRemoteAuthorizer } from '../../../src/cluster/trust/remote-authorizer.ts'
import { resolveTokenOperation } from '../../../src/cluster/trust/token-operations.ts'
import { PermissionChecker } from '../../../src/http/permission-checker.ts'
import { notActive, Refusal, unknownToken } from '../../../src/platform/errors.ts'
import type { Grants, Identity } from '../../../src/platform/operation.ts'
import { callOf, identity } from '../../host/allocations/host-fixture.ts'

const TIMES = { requestMs: 400, recheckMs: 400, grantsMs: 400 }
const of = (accessor: string): Identity => ({ ...identity(), accessor })
const grantsOf = (accessor: string): Grants => ({ accessor, management: false, policies: [] })

/** A server that is active, standby or without an active one. */
function member(times = TIMES) {
  const state: { active: 'here' | 'there' | 'none'; isRevoked: boolean } = { active: 'here', isRevoked: false }
  const answer = (from: string, token: string): Grants => {
    if (state.isRevoked) throw unknownToken()
    return grantsOf(`${token} ${from}`)
  }
  const sha256 = createHash('sha256').update('own').digest('hex')
  const own = createAuthorizer({
    enabled: true,
    tokens: [{ name: 'own', sha256, identity: of('own'), grants: grantsOf('own') }],
    anonymous: of('anonymous'),
  })
  const core = createCoreAuthorizer(own, {
    identityOf: (token) => of(answer('here', token).accessor),
    grantsOf: (token) => answer('here', token),
  })
  const ask = async (token: string): Promise<Grants> => {
    if (state.active !== 'there') throw notActive()
    return answer('there', token)
  }
  const remote = createRemoteAuthorizer({
    local: own,
    ask,
    identityOf: ({ accessor }) => of(accessor),
    freshMs: 0,
    ttlMs: 0,
  })
  const asking: Authorizer = { ...remote, grantsOf: (token) => ask(token ?? '') }
  return { state, authorizer: createMemberAuthorizer(core, asking, () => state.active === 'here', times) }
}

const code = (error: unknown) => (error instanceof Refusal ? error.code : error)

test('a token is resolved here while this server is active, and by the active server otherwise', async () => {
  const { authorizer, state } = member()
  const resolved = authorizer.resolve('t')
  assert.ok(!(resolved instanceof Promise))
  assert.equal(resolved.accessor, 't here')
  state.active = 'there'
  assert.equal((await authorizer.resolve('t')).accessor, 't there')
  state.isRevoked = true
  await assert.rejects(
    async () => authorizer.recheck('t'),
    (error) => code(error) === 'permission_denied',
  )
})

test('while no server is active, a request waits and a configured token does not', async () => {
  for (const next of ['here', 'there'] as const) {
    const { authorizer, state } = member()
    state.active = 'none'
    assert.equal((await authorizer.resolve('own')).accessor, 'own')
    const waiting = Promise.all([authorizer.resolve('t'), authorizer.recheck('t'), authorizer.grantsOf?.('t')])
    await sleep(50)
    state.active = next
    assert.deepEqual(
      (await waiting).map((each) => each?.accessor),
      [`t ${next}`, `t ${next}`, `t ${next}`],
    )
  }
})

test('a request is refused if no server becomes active', async () => {
  const { authorizer, state } = member()
  state.active = 'none'
  await assert.rejects(async () => authorizer.resolve('t'), isNotActive)
  await assert.rejects(async () => authorizer.grantsOf?.('t'), isNotActive)
})

test('a server that is asked as the active one does not ask another', async () => {
  const { authorizer, state } = member()
  const operation = resolveTokenOperation((...parts) => authorizer.grantsOf?.(...parts) ?? grantsOf(''))
  const ask = (hops: number) => operation.run({ again: false }, { ...callOf(), token: 't', hops }, undefined)
  assert.deepEqual(await ask(2), grantsOf('t here'))
  state.active = 'there'
  assert.deepEqual(await ask(1), grantsOf('t there'))
  await assert.rejects(
    async () => ask(2),
    (error) => code(error) === 'not_active',
  )
})

test('an answer in progress continues while the active server changes, and ends when its caller was revoked', async (t) => {
  const { authorizer, state } = member({ ...TIMES, recheckMs: 5000 })
  const checker = new PermissionChecker({
    resolve: (token, remote) => authorizer.recheck(token, remote),
    intervalMs: () => 20,
  })
  const renewed: string[] = []
  const { promise: ended, resolve: end } = Promise.withResolvers<Refusal>()
  const leave = checker.keep('t', undefined, { renew: ({ accessor }) => void renewed.push(accessor), end })
  t.after(leave)
  state.active = 'none'
  await sleep(150)
  state.active = 'there'
  while (!renewed.includes('t there')) await sleep(10)
  state.isRevoked = true
  assert.equal((await ended).code, 'permission_denied')
})

test('an agent repeats its question while the server that it asks knows no active one, and uses its cache meanwhile', async () => {
  const { state } = member()
  const sha256 = createHash('sha256').update('own').digest('hex')
  const local = createAuthorizer({
    enabled: true,
    tokens: [{ name: 'own', sha256, identity: of('own'), grants: grantsOf('own') }],
    anonymous: of('anonymous'),
  })
  let asked = 0
  const ask = async (token: string) => {
    asked++
    if (state.active === 'none') throw notActive()
    return grantsOf(token)
  }
  const remote = { local, ask, identityOf: ({ accessor }: Grants) => of(accessor), freshMs: 0, ttlMs: 60_000 }
  const agent = createHeldAuthorizer(createRemoteAuthorizer(remote), TIMES)
  assert.equal((await agent.resolve('a')).accessor, 'a')
  state.active = 'none'
  assert.equal((await agent.recheck('a')).accessor, 'a')
  assert.equal(asked, 2)
  const waiting = agent.resolve('b')
  await sleep(50)
  state.active = 'there'
  assert.equal((await waiting).accessor, 'b')
})

function isNotActive(error: unknown): boolean {
  return code(error) === 'not_active'
}
