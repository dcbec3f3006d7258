/**
 * A caller passes a rule about a name by writing it in another case: `auth/userpass/users/ADMIN/password` where
 * `users/admin/password` is denied. And a rule that is written in upper case must hold, too.
 */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { auditLinesIn } from '../helpers/audit-lines.ts'
import type { CoreWorld } from '../helpers/core-world.ts'
import { expectStatus, tokenWith } from '../helpers/kv-world.ts'
import { MfaWorld } from '../helpers/mfa-world.ts'

const ALL = 'capabilities = ["create", "read", "update", "patch", "delete", "list", "sudo"]'
const EVERYTHING = `path "*" { ${ALL} }`
const deny = (path: string) => `path "${path}" { capabilities = ["deny"] }`

/** A path below each declaration that folds a name, in lower case, and a body for writing it. */
const FOLDED: readonly (readonly [string, object])[] = [
  ['auth/userpass/users/admin', { password: 'stolen' }],
  ['auth/userpass/users/admin/password', { password: 'stolen' }],
  ['auth/userpass/users/admin/policies', { token_policies: 'root-like' }],
  ['auth/team/people/users/admin', { password: 'stolen' }],
  ['auth/approle/role/admin', { token_policies: 'root-like' }],
  ['auth/approle/role/admin/token-policies', { token_policies: 'root-like' }],
  ['auth/approle/role/admin/role-id', { role_id: 'stolen' }],
  ['auth/approle/role/admin/secret-id', {}],
  ['auth/approle/role/admin/custom-secret-id', { secret_id: 'stolen' }],
  ['identity/entity/name/admin', { policies: ['root-like'] }],
  ['identity/group/name/admin', { policies: ['root-like'] }],
  ['sys/config/auditing/request-headers/x-admin', { hmac: false }],
  ['sys/config/ui/headers/x-admin', { values: ['1'] }],
  ['sys/policies/acl/admin', { policy: EVERYTHING }],
  ['sys/policy/admin', { policy: EVERYTHING }],
]

const upper = (path: string) => path.replace(/admin/, 'ADMIN')
const spellings = (path: string) => [path, upper(path), path.replace(/admin/, 'aDmIn')]

let mfa: MfaWorld
let world: CoreWorld
let auditFile = ''

test('policies treat a folded name in every letter case as the same name', async (t) => {
  mfa = await MfaWorld.open(t, { engines: [approle, kv] })
  world = mfa.world
  auditFile = join(world.directory, 'audit.log')
  for (const [path, type] of [
    ['userpass', 'userpass'],
    ['team/people', 'userpass'],
    ['approle', 'approle'],
  ]) {
    await expectStatus(world, 204, 'POST', `sys/auth/${path}`, { type })
  }
  await expectStatus(world, 204, 'PUT', 'sys/audit/file', { type: 'file', options: { file_path: auditFile } })
  await expectStatus(world, 204, 'POST', 'auth/userpass/users/admin', { password: 'right' })
  await expectStatus(world, 204, 'POST', 'auth/userpass/users/bob', { password: 'right' })
  await expectStatus(world, 204, 'POST', 'auth/approle/role/admin', {})
  await t.test('a rule about a name holds for every spelling of a request', everySpelling)
  await t.test('a rule in upper case applies to the folded name', upperCaseRules)
  await t.test('a template that results in upper case applies to the folded name', templates)
  await t.test('rules that differ only in case are one rule', unitedRules)
  await t.test('the audit log has one path for one name', audited)
  await t.test('MFA and required parameters apply to every spelling', restrictions)
  await t.test('capabilities are those of the folded name', capabilities)
  await t.test('a list keeps the names that the caller may read, in every spelling', keyFilter)
  await t.test('a quota counts all spellings together', quota)
  await t.test('a rule about the leases of a login holds for every spelling of its path', leases)
  await t.test('body values are compared as the engine parses them', values)
})

const ask = (method: string, path: string, token: string, body?: object) => world.ask(method, path, body, { token })

async function everySpelling(): Promise<void> {
  for (const [path, body] of FOLDED) {
    const token = await tokenWith(world, `${EVERYTHING}\n${deny(path)}`)
    for (const spelled of [...spellings(path), `${upper(path)}/`]) {
      for (const method of spelled.endsWith('/') ? ['GET', 'DELETE'] : ['GET', 'DELETE', 'POST']) {
        const { status, text } = await ask(method, spelled, token, method === 'POST' ? body : undefined)
        assert.equal(status, 403, `${method} ${spelled}: ${text}`)
      }
    }
  }
  const unlock = 'sys/locked-users/auth_userpass_1/unlock/admin'
  const token = await tokenWith(world, `${EVERYTHING}\n${deny(unlock)}`)
  for (const spelled of spellings(unlock)) assert.equal((await ask('POST', spelled, token)).status, 403, spelled)
  const login = await world.ask('POST', 'auth/userpass/login/Admin', { password: 'right' }, { token: null })
  assert.equal(login.status, 200, 'the password is the one before')
}

async function upperCaseRules(): Promise<void> {
  for (const [path, body] of FOLDED) {
    const wide = upper(path).replace(/ADMIN.*/, 'AD*')
    const rules = [upper(path), wide, upper(path).replace(/^[^/]+/, '+')]
    for (const rule of rules) {
      const token = await tokenWith(world, `${EVERYTHING}\n${deny(rule)}`)
      for (const spelled of spellings(path)) {
        const { status, text } = await ask('POST', spelled, token, body)
        assert.equal(status, 403, `${spelled} with ${rule}: ${text}`)
      }
    }
  }
  const granted = await tokenWith(world, 'path "auth/userpass/users/BOB" { capabilities = ["read"] }')
  for (const name of ['bob', 'BOB', 'Bob']) {
    assert.equal((await ask('GET', `auth/userpass/users/${name}`, granted)).status, 200, name)
  }
  assert.equal((await ask('GET', 'auth/userpass/users/admin', granted)).status, 403)
  // Elsewhere case counts, in the rule as in the path.
  await expectStatus(world, 204, 'POST', 'sys/mounts/kv', { type: 'kv', options: { version: '1' } })
  const secrets = await tokenWith(world, `path "kv/*" { ${ALL} }\n${deny('kv/Admin')}`)
  assert.equal((await ask('POST', 'kv/Admin', secrets, { a: 'b' })).status, 403)
  assert.equal((await ask('POST', 'kv/admin', secrets, { a: 'b' })).status, 204)
}

async function templates(): Promise<void> {
  await mfa.policy('own', `path "auth/userpass/*" { ${ALL} }\n${deny('auth/userpass/users/{{identity.entity.name}}')}`)
  const person = await mfa.person('person', ['own'])
  await expectStatus(world, 204, 'POST', `identity/entity/id/${person.entityId}`, { name: 'ADMIN' })
  for (const name of ['admin', 'ADMIN', 'Admin']) {
    assert.equal((await ask('GET', `auth/userpass/users/${name}`, person.token)).status, 403, name)
  }
  assert.equal((await ask('GET', 'auth/userpass/users/bob', person.token)).status, 200)
  await expectStatus(world, 204, 'DELETE', 'identity/entity/name/admin')
}

async function unitedRules(): Promise<void> {
  const token = await tokenWith(
    world,
    `path "auth/userpass/users/Bob" { capabilities = ["read"] }
     path "auth/userpass/users/bob" { capabilities = ["update"] required_parameters = ["token_ttl"] }`,
  )
  assert.equal((await ask('POST', 'auth/userpass/users/BOB', token, { token_ttl: '1h' })).status, 204)
  for (const name of ['bob', 'Bob']) {
    assert.equal((await ask('POST', `auth/userpass/users/${name}`, token, { token_policies: 'x' })).status, 403)
  }
  const denied = await tokenWith(world, `path "auth/userpass/users/bob" { ${ALL} }\n${deny('auth/userpass/users/BOB')}`)
  assert.equal((await ask('GET', 'auth/userpass/users/bob', denied)).status, 403)
}

async function audited(): Promise<void> {
  await expectStatus(world, 200, 'GET', 'auth/userpass/users/bOB')
  const paths = auditLinesIn(auditFile).map(({ request }) => String(request?.['path']))
  assert.deepEqual(paths.slice(-2), ['auth/userpass/users/bob', 'auth/userpass/users/bob'])
  assert.deepEqual(
    paths.filter((path) => /ADMIN|aDmIn/.test(path)),
    [],
  )
}

async function restrictions(): Promise<void> {
  await mfa.method('phone')
  for (const [at, name] of ['bob', 'BOB'].entries()) {
    const rule = `path "auth/userpass/*" { ${ALL} }\npath "auth/userpass/users/${name}" { ${ALL} mfa_methods = ["phone"] }`
    await mfa.policy(`step-${at}`, rule)
    const person = await mfa.person(`person-${at}`, [`step-${at}`])
    const { secret } = await mfa.enrol('phone', person)
    for (const spelled of ['bob', 'Bob', 'BOB']) {
      assert.equal((await ask('GET', `auth/userpass/users/${spelled}`, person.token)).status, 403, spelled)
    }
    const { status, text } = await mfa.read(person, 'auth/userpass/users/Bob', `phone:${mfa.code(secret)}`)
    assert.equal(status, 200, text)
  }
  const token = await tokenWith(
    world,
    `path "auth/userpass/*" { ${ALL} }
     path "auth/userpass/users/bob/password" { ${ALL} required_parameters = ["reason"] min_wrapping_ttl = "60s" }`,
  )
  assert.equal((await ask('POST', 'auth/userpass/users/BOB/password', token, { password: 'x' })).status, 403)
}

async function capabilities(): Promise<void> {
  const token = await tokenWith(
    world,
    `path "sys/capabilities-self" { capabilities = ["update"] }
     path "auth/userpass/*" { ${ALL} }\n${deny('auth/userpass/users/admin')}\n${deny('auth/userpass/users/CAROL')}`,
  )
  const paths = ['admin', 'ADMIN', 'carol', 'Carol'].map((name) => `auth/userpass/users/${name}`)
  const { body } = await ask('POST', 'sys/capabilities-self', token, { paths })
  for (const path of paths) assert.deepEqual(body.data[path], ['deny'], path)
}

async function keyFilter(): Promise<void> {
  for (const name of ['Shown', 'Hidden']) await expectStatus(world, 200, 'POST', 'identity/entity', { name })
  const token = await tokenWith(
    world,
    `path "identity/entity/name" { capabilities = ["list"] list_scan_response_keys_filter_path = "{{ .path }}{{ .key }}" }
     path "identity/entity/name/+" { capabilities = ["read"] }
     ${deny('identity/entity/name/hidden')}`,
  )
  const { body, text } = await ask('LIST', 'identity/entity/name', token)
  const keys = body.data?.['keys'] as readonly string[] | undefined
  assert.ok(keys?.includes('Shown') && !keys.includes('Hidden'), text)
}

async function leases(): Promise<void> {
  await expectStatus(world, 204, 'POST', 'auth/userpass/users/dora', { password: 'right' })
  const login = await world.ask('POST', 'auth/userpass/login/dora', { password: 'right' }, { token: null })
  const dora = String(login.body.auth?.['client_token'])
  for (const restriction of ['["deny"]', '["read"]', `["update", "list", "sudo"] required_parameters = ["reason"]`]) {
    for (const named of ['dora', 'DORA']) {
      const rules = ['lookup', 'revoke-prefix', 'revoke-force'].map(
        (path) => `path "sys/leases/${path}/auth/userpass/login/${named}*" { capabilities = ${restriction} }`,
      )
      const token = await tokenWith(world, `${EVERYTHING}\n${rules.join('\n')}`)
      for (const spelled of ['dora', 'DORA', 'Dora']) {
        const at = `auth/userpass/login/${spelled}`
        for (const path of [`revoke-prefix/${at}`, `revoke-force/${at}`]) {
          const { status } = await ask('POST', `sys/leases/${path}`, token, {})
          assert.equal(status, 403, `${path} with ${named} ${restriction}`)
        }
        if (restriction.includes('"list"')) continue
        const { status } = await ask('LIST', `sys/leases/lookup/${at}`, token)
        assert.equal(status, 403, `lookup ${at} with ${named} ${restriction}`)
      }
    }
  }
  assert.equal((await ask('GET', 'auth/token/lookup-self', dora)).status, 200, 'the login was not revoked')
  const granted = await tokenWith(
    world,
    'path "sys/leases/revoke-prefix/auth/userpass/login/DORA" { capabilities = ["update", "sudo"] }',
  )
  assert.equal((await ask('POST', 'sys/leases/revoke-prefix/auth/userpass/login/Dora', granted, {})).status, 403)
  assert.equal((await ask('POST', 'sys/leases/revoke-prefix/auth/userpass/login/DORA', granted, {})).status, 204)
  assert.equal((await ask('GET', 'auth/token/lookup-self', dora)).status, 403)
}

async function quota(): Promise<void> {
  const rule = { path: 'auth/userpass/users/admin', rate: 3, interval: '1h' }
  await expectStatus(world, 204, 'POST', 'sys/quotas/rate-limit/q', rule)
  const statuses: number[] = []
  for (const spelled of spellings('auth/userpass/users/admin')) {
    statuses.push((await world.ask('GET', spelled)).status)
  }
  statuses.push((await world.ask('GET', 'auth/userpass/users/AdMiN')).status)
  assert.deepEqual(statuses, [200, 200, 200, 429])
  await expectStatus(world, 204, 'DELETE', 'sys/quotas/rate-limit/q')
}

async function values(): Promise<void> {
  const cases = [
    ['auth/userpass/users/bob', 'groups', 'admins'],
    ['auth/userpass/users/bob', 'token_policies', 'admins'],
    ['auth/approle/role/admin', 'groups', 'admins'],
    ['auth/approle/role/admin', 'policies', 'admins'],
    ['identity/entity', 'name', 'admins'],
    ['identity/entity', 'policies', 'admins'],
    ['identity/group', 'name', 'admins'],
    ['identity/lookup/entity', 'name', 'admins'],
  ] as const
  for (const [path, field, value] of cases) {
    for (const named of [value, value.toUpperCase()]) {
      const token = await tokenWith(world, `path "${path}" { ${ALL} denied_parameters = { ${field} = ["${named}"] } }`)
      const isList = !path.startsWith('identity/') || field === 'policies'
      const forms = isList ? [value, 'ADMINS', ` ${value}`, ['x', 'Admins '], 'x, ADMINS'] : [value, 'ADMINS', 'aDmins']
      for (const given of forms) {
        const { status, text } = await ask('POST', path, token, { [field]: given })
        assert.equal(status, 403, `${path} ${field}=${JSON.stringify(given)}: ${text}`)
      }
    }
  }
  const one = await tokenWith(
    world,
    `path "auth/userpass/users/bob" { ${ALL} denied_parameters = { policies = ["1"] } }`,
  )
  assert.equal((await ask('POST', 'auth/userpass/users/bob', one, { policies: [true] })).status, 403, 'true is text 1')
  const allowed = `path "auth/userpass/users/bob" { ${ALL} allowed_parameters = { groups = ["Staff"] } }`
  const token = await tokenWith(world, allowed)
  assert.equal((await ask('POST', 'auth/userpass/users/bob', token, { groups: 'staff' })).status, 204)
  assert.equal((await ask('POST', 'auth/userpass/users/bob', token, { groups: 'staff,x' })).status, 403)
}
