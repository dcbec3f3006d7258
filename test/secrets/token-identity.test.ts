import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusal } from '../../src/platform/errors.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { isToken, make, writePolicy } from './token-world.ts'

const HOSTS = 'node { policy = "read" }\nnamespace "web" { policy = "read" }'
const REFUSED = (error: unknown) => error instanceof Refusal && error.code === 'permission_denied'

test('the policies of a token decide about requests to hosts', async (t) => {
  const world = await CoreWorld.open(t)
  await writePolicy(world, 'hosts', HOSTS)
  const { accessor, token } = await make(world, { policies: ['hosts', 'none-such'] })
  const identity = await world.core.identityOf(token, '127.0.0.1')
  assert.equal(identity.accessor, accessor)
  const rights = [identity.allowsNode('read'), identity.allowsNode('write'), identity.allowsAgent('read')]
  assert.deepEqual(rights, [true, false, false])
  assert.ok(identity.allowsNamespace('web', 'read-job'))
  assert.ok(!identity.allowsNamespace('db', 'read-job'))
  const root = await world.core.identityOf(world.rootToken, undefined)
  assert.ok(root.allowsNode('write') && root.allowsAgent('write') && root.allowsNamespace('db', 'read-logs'))
  const grants = await world.core.grantsOf(token, '127.0.0.1')
  assert.deepEqual([grants.accessor, grants.management, grants.policies.includes(HOSTS)], [accessor, false, true])
  assert.deepEqual((await world.core.grantsOf(world.rootToken, undefined)).management, true)
  await writePolicy(world, 'hosts', 'node { policy = "write" }')
  assert.ok((await world.core.identityOf(token, undefined)).allowsNode('write'))
})

test('requests to hosts check addresses and entities and count uses', async (t) => {
  const world = await CoreWorld.open(t)
  const ask = async (token: string, remote?: string) => world.core.identityOf(token, remote)
  await assert.rejects(ask('nonsense'), REFUSED)
  await assert.rejects(ask(''), REFUSED)
  await world.ask('POST', 'auth/token/roles/r', { token_bound_cidrs: '10.0.0.0/8', allowed_policies: 'default' })
  const bound = await make(world, {}, undefined, 'create/r')
  await assert.rejects(ask(bound.token, '11.0.0.1'), REFUSED)
  await assert.rejects(ask(bound.token), REFUSED)
  assert.equal((await ask(bound.token, '10.0.0.1')).accessor, bound.accessor)
  const limited = await make(world, { policies: ['default'], num_uses: 3 })
  const outcomes = await Promise.allSettled(Array.from({ length: 5 }, async () => ask(limited.token)))
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 3)
  assert.ok(!(await isToken(world, limited.token)))
  await world.core.seal()
  await assert.rejects(ask(world.rootToken), (error) => error instanceof Refusal && error.code === 'sealed')
})
