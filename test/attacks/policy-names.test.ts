/**
 * A token holder whose rules name policies writes those names in another way: `ADMIN`, ` admin `, a list, a text with
 * commas. And names `Root` where a role or a path forbids `root`.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'
import { expectStatus, tokenWith } from '../helpers/kv-world.ts'

const SPELLINGS = ['admin', 'ADMIN', 'Admin', ' admin', 'admin ', '\tAdMiN\n', `${' '.repeat(70_000)}ADMIN`]
/** What other white space there is. */
const WIDE = ['\u00a0admin', 'admin\u2003', '\ufeffADMIN']

async function open(t: TestContext): Promise<CoreWorld> {
  const world = await CoreWorld.open(t)
  for (const name of ['admin', 'app-one', 'app-two']) {
    await expectStatus(world, 204, 'PUT', `sys/policies/acl/${name}`, {
      policy: `path "${name}" { capabilities = ["read"] }`,
    })
  }
  return world
}

async function policiesOf(world: CoreWorld, token: string, body: object, path = 'auth/token/create') {
  const { body: answer, status, text } = await world.ask('POST', path, body, { token })
  assert.ok(status === 200 || status === 403 || status === 400, text)
  return status === 200 ? (answer.auth['token_policies'] as string[]) : status
}

const CREATE = (rule: string) => `path "auth/token/create" { capabilities = ["update", "sudo"] ${rule} }`

test('a policy that may not be assigned is refused in every spelling', async (t) => {
  const world = await open(t)
  for (const rule of ['policies = ["admin"]', 'Policies = ["Admin"]', 'policies = [" adm*"]', 'POLICIES = ["*MIN"]']) {
    const token = await tokenWith(world, CREATE(`denied_parameters = { ${rule} }`))
    for (const spelling of [...SPELLINGS, ...WIDE]) {
      for (const policies of [spelling, [spelling], ['app-one', spelling]]) {
        assert.equal(
          await policiesOf(world, token, { policies }),
          403,
          JSON.stringify({ rule, policies }).slice(0, 200),
        )
      }
    }
    assert.deepEqual(await policiesOf(world, token, { policies: ['APP-one'] }), ['app-one', 'default'])
  }
})

test('allowed policies apply to each member of the requested list', async (t) => {
  const world = await open(t)
  const token = await tokenWith(world, CREATE('allowed_parameters = { policies = ["App-*", "default"], ttl = [] }'))
  const common = ['app-one', 'app-two', 'default']
  assert.deepEqual(await policiesOf(world, token, { policies: ['app-one', ' APP-TWO '] }), common)
  for (const policies of [['app-one', 'admin'], ['app-one', 'ADMIN'], 'app-one,admin', 'admin', ['root'], 'Root', []]) {
    assert.equal(await policiesOf(world, token, { policies }), 403, JSON.stringify(policies))
  }
  assert.equal(await policiesOf(world, token, { policies: ['app-one'], num_uses: 1 }), 403)
})

test('a string that a field splits at its commas does not bypass a list of names', async (t) => {
  const world = await open(t)
  const token = await tokenWith(
    world,
    `path "auth/token/roles/*" { capabilities = ["create", "update"]
       allowed_parameters = { allowed_policies = ["app-*"] } }`,
  )
  for (const [allowed, status] of [
    ['app-one,admin', 403],
    ['app-one, ADMIN', 403],
    [['app-one', 'admin'], 403],
    ['app-one,App-Two', 204],
  ] as const) {
    const answer = await world.ask('POST', 'auth/token/roles/mine', { allowed_policies: allowed }, { token })
    assert.equal(answer.status, status, `${JSON.stringify(allowed)}: ${answer.text}`)
  }
  const { body } = await world.ask('GET', 'auth/token/roles/mine')
  assert.deepEqual(body.data['allowed_policies'], ['app-one', 'app-two'])
})

test('root is recognized in every spelling, for tokens and for roles', async (t) => {
  const world = await open(t)
  const token = await tokenWith(world, CREATE(''))
  for (const name of ['root', 'Root', ' ROOT ', '\u00a0rOOt']) {
    for (const policies of [[name], name, ['app-one', name]]) {
      assert.equal(await policiesOf(world, token, { policies }), 400, JSON.stringify(policies))
    }
    await world.ask('POST', 'auth/token/roles/r', { allowed_policies: [name, 'app-one'] })
    const maker = await tokenWith(world, 'path "auth/token/create/r" { capabilities = ["update"] }')
    assert.equal(await policiesOf(world, maker, { policies: [name] }, 'auth/token/create/r'), 400)
    assert.equal(await policiesOf(world, maker, {}, 'auth/token/create/r'), 400)
  }
})

test('a disallowed policy is refused however the role and the caller spell it', async (t) => {
  const world = await open(t)
  const token = await tokenWith(world, 'path "auth/token/create/*" { capabilities = ["update"] }')
  for (const [field, value] of [
    ['disallowed_policies', [' Admin ']],
    ['disallowed_policies', ['\u2003ADMIN']],
    ['disallowed_policies_glob', [' ADM*']],
    ['allowed_policies_glob', ['\u00a0APP*']],
  ] as const) {
    await expectStatus(world, 204, 'POST', 'auth/token/roles/limited', { [field]: value })
    for (const spelling of SPELLINGS) {
      assert.equal(await policiesOf(world, token, { policies: [spelling] }, 'auth/token/create/limited'), 400, field)
    }
    const given = await policiesOf(world, token, { policies: ['App-One '] }, 'auth/token/create/limited')
    assert.deepEqual(given, ['app-one', 'default'], field)
    await expectStatus(world, 204, 'DELETE', 'auth/token/roles/limited')
  }
})

test('rules about the path of a policy apply to each spelling of its name, lists included', async (t) => {
  const world = await open(t)
  const token = await tokenWith(
    world,
    `path "sys/policies/*" { capabilities = ["create", "read", "update", "patch", "delete", "list"] }
     path "sys/policy/*" { capabilities = ["create", "read", "update", "delete"] }
     path "sys/policies/acl/admin" { capabilities = ["deny"] }
     path "sys/policies/acl/adm/*" { capabilities = ["deny"] }
     path "sys/policies/detailed/acl/adm/*" { capabilities = ["deny"] }
     path "sys/policy/admin" { capabilities = ["deny"] }`,
  )
  const policy = 'path "*" { capabilities = ["sudo"] }'
  for (const name of ['admin', 'Admin', ' admin', 'ADMIN ', '\u2003admin'].map(encodeURIComponent)) {
    for (const path of [`sys/policies/acl/${name}`, `sys/policy/${name}`]) {
      for (const [method, body] of [['GET'], ['DELETE'], ['POST', { policy }]] as const) {
        const { status } = await world.ask(method, path, body, { token })
        // White space that is none of a request's path is refused as such.
        assert.ok(status === 403 || status === 400, `${method} ${path}: ${status}`)
      }
    }
  }
  for (const path of ['sys/policies/acl/ADM/', 'sys/policies/detailed/acl/aDM/']) {
    assert.equal((await world.ask('LIST', path, undefined, { token })).status, 403, path)
  }
  const { body } = await world.ask('GET', 'sys/policies/acl/admin')
  assert.equal(body.data['policy'], 'path "admin" { capabilities = ["read"] }')
})

test('built-in policies are protected from changes in every spelling', async (t) => {
  const world = await open(t)
  for (const name of ['root', 'Root', ' ROOT', 'response-wrapping ', 'Response-Wrapping'].map(encodeURIComponent)) {
    for (const method of ['POST', 'DELETE']) {
      const answer = await world.ask(method, `sys/policies/acl/${name}`, { policy: 'path "a" {}' })
      assert.equal(answer.status, 400, `${method} ${name}: ${answer.text}`)
    }
  }
  assert.equal((await world.ask('DELETE', 'sys/policies/acl/%20Default')).status, 400)
})
