import assert from 'node:assert/strict'
import { test } from 'node:test'
import jsQR from 'jsqr'
import { URI } from 'otpauth'
import { PNG } from 'pngjs'
import type { CoreWorld } from '../../helpers/core-world.ts'
import { eventually } from '../../helpers/eventually.ts'
import { MfaWorld, wrongCode } from '../../helpers/mfa-world.ts'

test('a method is written with defaults, read, listed, replaced as a whole, and removed with its secrets', async (t) => {
  const { world } = await MfaWorld.open(t)
  const at = 'sys/mfa/method/totp/app'
  assert.equal((await world.ask('GET', at)).status, 404)
  assert.equal((await world.ask('LIST', 'sys/mfa/method')).status, 404)
  assert.equal((await world.ask('POST', at, { issuer: 'outpost' })).status, 204)
  const { id, ...read } = (await world.ask('GET', at)).body.data
  assert.match(String(id), /^[\da-f-]{36}$/)
  assert.deepEqual(read, {
    algorithm: 'SHA1',
    digits: 6,
    issuer: 'outpost',
    key_size: 20,
    max_validation_attempts: 5,
    name: 'app',
    period: 30,
    qr_size: 200,
    skew: 1,
    type: 'totp',
  })
  const all = { issuer: 'x', algorithm: 'SHA512', digits: '8', period: '1m', skew: 0, qr_size: 0, key_size: 64 }
  assert.equal((await world.ask('PUT', at, all)).status, 204)
  const changed = (await world.ask('GET', `sys/mfa/method/totp/${String(id)}`)).body.data
  assert.deepEqual([changed['id'], changed['period'], changed['digits'], changed['key_size']], [id, 60, 8, 64])
  await world.ask('POST', at, { issuer: 'y' })
  assert.deepEqual((await world.ask('GET', at)).body.data['period'], 30)
  assert.deepEqual((await world.ask('LIST', 'sys/mfa/method')).body.data['keys'], ['app'])
  assert.equal((await world.ask('DELETE', at)).status, 204)
  assert.equal((await world.ask('DELETE', at)).status, 204)
  assert.equal((await world.ask('GET', at)).status, 404)
})

test('parameters that generate cannot use are 400 and change nothing', async (t) => {
  const { world } = await MfaWorld.open(t)
  const error = async (input: object, name = 'app') =>
    (await world.ask('POST', `sys/mfa/method/totp/${name}`, { issuer: 'x', ...input })).body.errors[0] ?? ''
  assert.equal(await error({ algorithm: 'MD5' }), 'unrecognized algorithm')
  assert.equal(await error({ algorithm: 'sha1' }), 'unrecognized algorithm')
  assert.equal(await error({ digits: 7 }), 'digits can only be 6 or 8')
  assert.match(await error({ digits: 'six' }), /field "digits"/)
  assert.equal(await error({ period: 0 }), 'period must be greater than zero')
  assert.match(await error({ period: -30 }), /field "period": cannot provide negative value/)
  assert.equal(await error({ period: '2h' }), 'period must be 1 to 3600')
  assert.equal(await error({ skew: 2 }), 'skew must be 0 or 1')
  assert.equal(await error({ skew: -1 }), 'skew must be 0 or 1')
  assert.equal(await error({ key_size: 0 }), 'key_size must be greater than zero')
  assert.equal(await error({ key_size: 9 }), 'key_size must be 10 to 128')
  assert.equal(await error({ key_size: 1_000_000 }), 'key_size must be 10 to 128')
  assert.equal(await error({ issuer: '' }), 'issuer must be set')
  assert.equal(await error({ issuer: ' ' }), 'issuer must be set')
  assert.match(await error({ issuer: 'a\nb' }), /issuer must have at most 64 printable characters/)
  assert.match(await error({ issuer: 'a'.repeat(65) }), /issuer must have at most 64 printable characters/)
  for (const size of [-5, 1, 63, 2049]) assert.match(await error({ qr_size: size }), /qr_size .* must be 64 to 2048/)
  assert.match(await error({ qr_size: 64, issuer: 'ü'.repeat(64), key_size: 128 }), /pixels/)
  assert.equal(await error({ max_validation_attempts: -1 }), 'max_validation_attempts must be greater than zero')
  assert.match(await error({ max_validation_attempts: 1001 }), /must be 1 to 1000/)
  assert.match(await error({ recovery_codes: 21 }), /recovery_codes must be 0 to 20/)
  for (const name of ['generate', 'admin-generate', 'admin-destroy', 'totp']) {
    assert.equal(await error({}, name), `the name "${name}" is reserved`)
  }
  assert.match(await error({}, 'a b'), /the name of an MFA method/)
  assert.match(await error({}, '4469f90e-cf8a-c25d-0490-0d9cc11587ed'), /must not be a UUID/)
  assert.equal((await world.ask('LIST', 'sys/mfa/method')).status, 404)
})

test('10,000 methods are listed and found, the next is refused, and 1,000 validation attempts are accepted', async (t) => {
  const { world } = await MfaWorld.open(t)
  const create = (name: string) =>
    world.ask('POST', `sys/mfa/method/totp/${name}`, { issuer: 'x', qr_size: 0, max_validation_attempts: 1000 })
  assert.equal((await create('m0')).status, 204)
  const storage = world.core.open.storage.below('sys/mfa/method/')
  const [id = ''] = storage.list()
  const first = JSON.parse(String(storage.get(id))) as object
  const puts = Array.from({ length: 9999 }, (_, at) => {
    const method = { ...first, id: `id-${at + 1}`, name: `m${at + 1}`, position: at + 2 }
    return { path: method.id, value: Buffer.from(JSON.stringify(method)) }
  })
  await storage.commit({ puts, deletes: [] })
  await restart(world)
  assert.deepEqual((await create('more')).body.errors, ['at most 10000 MFA methods'])
  const keys = (await world.ask('LIST', 'sys/mfa/method')).body.data['keys'] as string[]
  assert.deepEqual([keys.length, keys[0], keys.at(-1)], [10_000, 'm0', 'm9999'])
  const method = (await world.ask('GET', 'sys/mfa/method/totp/m9999')).body.data
  assert.equal(method['max_validation_attempts'], 1000)
  assert.equal((await world.ask('DELETE', 'sys/mfa/method/totp/m0')).status, 204)
  assert.equal((await create('more')).status, 204)
})

async function restart(world: CoreWorld): Promise<void> {
  await world.ask('PUT', 'sys/seal')
  const key = world.unsealKey.toString('hex')
  assert.equal((await world.ask('PUT', 'sys/unseal', { key }, { token: null })).body['sealed'], false)
}

test('an interrupted removal of a method continues after a restart', async (t) => {
  const { world } = await MfaWorld.open(t)
  const storage = world.core.open.storage.below('sys/mfa/')
  const before = storage.paths('').length
  // What a process leaves that is killed after the first step.
  const id = '4469f90e-cf8a-c25d-0490-0d9cc11587ed'
  const puts = [`removed-method/${id}`, `secret/${id}/entity`].map((path) => ({ path, value: Buffer.from('{}') }))
  await storage.commit({ puts, deletes: [] })
  await restart(world)
  const after = world.core.open.storage.below('sys/mfa/')
  await eventually(() => after.paths('').length === before)
})

test('methods of an older version in one entry are kept by a restart and by changes', async (t) => {
  const { world } = await MfaWorld.open(t)
  const names = async () => (await world.ask('LIST', 'sys/mfa/method')).body.data['keys']
  const { storage } = world.core.open
  const settings = { issuer: 'x', periodSeconds: 30, keyBytes: 20, qrPixels: 0, algorithm: 'SHA1', digits: 6, skew: 1 }
  const limits = { attemptsMax: 5, recoveryCodes: 0, needsConfirmation: false }
  const old = (id: string, name: string) => ({ id, name, ...settings, ...limits })
  const entry = { methods: [old('id-c', 'c'), old('id-a', 'a'), old('id-b', 'b')], leaving: ['id-gone'] }
  const value = Buffer.from(JSON.stringify(entry))
  await storage.commit({ puts: [{ path: 'sys/mfa/methods', value }], deletes: [] })
  await restart(world)
  assert.deepEqual(await names(), ['c', 'a', 'b'])
  assert.equal((await world.ask('DELETE', 'sys/mfa/method/totp/a')).status, 204)
  await world.ask('POST', 'sys/mfa/method/totp/d', { issuer: 'x', qr_size: 0 })
  await world.ask('POST', 'sys/mfa/method/totp/b', { issuer: 'y', qr_size: 0 })
  await restart(world)
  assert.deepEqual(await names(), ['c', 'b', 'd'])
  assert.equal((await world.ask('GET', 'sys/mfa/method/totp/id-b')).body.data['issuer'], 'y')
})

test('generate returns a QR code of the URL and the key once', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app', { qr_size: 220, issuer: 'Out post & co' })
  await mfa.policy('p', 'path "sys/mfa/method/totp/+/generate" { capabilities = ["read"] }')
  const ada = await mfa.person('ada', ['p'])
  const first = await mfa.read(ada, 'sys/mfa/method/totp/app/generate')
  const { barcode, secret, url } = first.body.data as { barcode: string; secret: string; url: string }
  const png = PNG.sync.read(Buffer.from(barcode, 'base64'))
  assert.deepEqual([png.width, png.height], [220, 220])
  assert.equal(jsQR.default(new Uint8ClampedArray(png.data), png.width, png.height)?.data, url)
  const parsed = URI.parse(url)
  assert.deepEqual([parsed.issuer, parsed.label, parsed.secret.base32], ['Out post & co', 'ada', secret])
  const again = await mfa.read(ada, 'sys/mfa/method/totp/app/generate')
  assert.deepEqual([again.status, again.body['data'] ?? null], [200, null])
  assert.deepEqual(again.body.warnings, ['Entity already has a secret for MFA method "app"'])
  await mfa.policy('p', 'path "sys/policies/acl/p" { capabilities = ["read"] mfa_methods = ["app"] }')
  assert.equal((await mfa.read(ada, 'sys/policies/acl/p', `app:${mfa.code(secret)}`)).status, 200)
})

test('a caller without an entity and an unknown method are 400', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app')
  const at = 'sys/mfa/method/totp/app'
  const errors = async (method: string, path: string, body?: object) =>
    (await world.ask(method, path, body)).body.errors
  assert.deepEqual(await errors('GET', `${at}/generate`), ['missing entityID'])
  assert.deepEqual(await errors('POST', `${at}/admin-generate`, {}), ['missing entityID'])
  assert.deepEqual(await errors('POST', `${at}/admin-generate`, { entity_id: 'none' }), ['invalid entity ID'])
  assert.deepEqual(await errors('POST', `${at}/admin-destroy`, {}), ['missing entity ID'])
  for (const path of ['sys/mfa/method/app/admin-destroy', `${at}/admin-destroy`]) {
    assert.deepEqual(await errors('POST', path, { entity_id: 'none' }), ['invalid entity ID'])
  }
  const none = ['configuration for method name "none" does not exist']
  assert.deepEqual(await errors('POST', 'sys/mfa/method/totp/none/admin-generate', { entity_id: 'x' }), none)
  assert.deepEqual(await errors('POST', 'sys/mfa/method/none/admin-destroy', { entity_id: 'x' }), none)
})

test('a secret can be destroyed by both paths and replaced in one step, and is removed with its method', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app')
  await mfa.policy('p', 'path "cubbyhole/a" { capabilities = ["read"] mfa_methods = ["app"] }')
  const ada = await mfa.person('ada', ['p'])
  const isAccepted = async (secret: string) => {
    world.nowMs += 60_000
    return (await mfa.read(ada, 'cubbyhole/a', `app:${mfa.code(secret)}`)).status === 404
  }
  for (const path of ['sys/mfa/method/app/admin-destroy', 'sys/mfa/method/totp/app/admin-destroy']) {
    const { secret } = await mfa.enrol('app', ada)
    assert.equal(await isAccepted(secret), true)
    assert.equal((await world.ask('POST', path, { entity_id: ada.entityId })).status, 204)
    assert.equal((await world.ask('POST', path, { entity_id: ada.entityId })).status, 204)
    assert.equal(await isAccepted(secret), false)
  }
  const { secret: first } = await mfa.enrol('app', ada)
  const replaced = await world.ask('POST', 'sys/mfa/method/totp/app/admin-generate', {
    entity_id: ada.entityId,
    replace: true,
  })
  assert.deepEqual([await isAccepted(first), await isAccepted(String(replaced.body.data['secret']))], [false, true])
  assert.equal((await world.ask('DELETE', 'sys/mfa/method/totp/app?force=true')).status, 204)
  await mfa.method('app')
  assert.equal(await isAccepted(String(replaced.body.data['secret'])), false)
  assert.deepEqual(world.core.barrier.paths('sys/mfa/secret/'), [])
})

test('secrets are removed with their entity, and moved to the other one in a merge', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app')
  await mfa.method('second')
  await mfa.policy('p', 'path "cubbyhole/a" { capabilities = ["read"] mfa_methods = ["app"] }')
  const [ada, bob] = [await mfa.person('ada', ['p']), await mfa.person('bob', ['p'])]
  const ofAda = await mfa.enrol('app', ada)
  await mfa.enrol('second', ada)
  await mfa.enrol('second', bob)
  const body = { from_entity_ids: [ada.entityId], to_entity_id: bob.entityId, force: true }
  assert.equal((await world.ask('POST', 'identity/entity/merge', body)).status, 204)
  assert.equal(world.core.barrier.paths('sys/mfa/secret/').length, 2)
  assert.equal((await mfa.read(bob, 'cubbyhole/a', `app:${mfa.code(ofAda.secret)}`)).status, 404)
  assert.equal(
    (await mfa.read(ada, 'cubbyhole/a', `app:${mfa.code(ofAda.secret, 1)}`)).status,
    404,
    'the same entity now',
  )
  await world.ask('DELETE', `identity/entity/id/${bob.entityId}`)
  assert.deepEqual(world.core.barrier.paths('sys/mfa/secret/'), [])
})

test('the secret of the entity that stays in a merge is kept, not replaced by that of the merged one', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app')
  await mfa.policy('p', 'path "cubbyhole/a" { capabilities = ["read"] mfa_methods = ["app"] }')
  const [ada, bob] = [await mfa.person('ada', ['p']), await mfa.person('bob', ['p'])]
  const [ofAda, ofBob] = [await mfa.enrol('app', ada), await mfa.enrol('app', bob)]
  const body = { from_entity_ids: [ada.entityId], to_entity_id: bob.entityId, force: true }
  assert.equal((await world.ask('POST', 'identity/entity/merge', body)).status, 204)
  const statusOf = async (secret: string) => (await mfa.read(bob, 'cubbyhole/a', `app:${mfa.code(secret)}`)).status
  assert.deepEqual([await statusOf(ofAda.secret), await statusOf(ofBob.secret)], [403, 404])
})

test('with confirmation a secret takes effect with its first code, and may be generated again before', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app', { require_confirmation: true })
  await mfa.policy(
    'p',
    `path "cubbyhole/a" { capabilities = ["read"] mfa_methods = ["app"] }
    path "sys/mfa/method/totp/app/*" { capabilities = ["read", "update"] }`,
  )
  const ada = await mfa.person('ada', ['p'])
  const { secret: lost } = await mfa.enrol('app', ada)
  const { secret } = await mfa.enrol('app', ada)
  const confirm = async (passcode: string) =>
    (await world.ask('POST', 'sys/mfa/method/totp/app/confirm', { passcode }, { token: ada.token })).status
  assert.equal((await mfa.read(ada, 'cubbyhole/a', `app:${mfa.code(secret)}`)).status, 403)
  assert.equal(await confirm(''), 400)
  assert.equal(await confirm(mfa.code(lost)), 403)
  assert.equal(await confirm(mfa.code(secret)), 204)
  assert.equal(await confirm(mfa.code(secret, 1)), 403, 'nothing awaits it')
  assert.equal((await mfa.read(ada, 'cubbyhole/a', `app:${mfa.code(secret)}`)).status, 403, 'used')
  assert.equal((await mfa.read(ada, 'cubbyhole/a', `app:${mfa.code(secret, 1)}`)).status, 404)
  const again = await mfa.read(ada, 'sys/mfa/method/totp/app/generate')
  assert.match(again.body.warnings?.[0] ?? '', /already has a secret/)
})

test('recovery codes are shown once, and each is accepted once', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app', { recovery_codes: 2 })
  await mfa.policy('p', 'path "cubbyhole/a" { capabilities = ["read"] mfa_methods = ["app"] }')
  const ada = await mfa.person('ada', ['p'])
  const { recovery_codes: [one = '', two = ''] = [] } = await mfa.enrol('app', ada)
  assert.match(one, /^([a-z2-7]{5}-){3}[a-z2-7]{5}$/)
  const status = async (code: string) => (await mfa.read(ada, 'cubbyhole/a', `app:${code}`)).status
  const told = async () =>
    (await mfa.world.ask('GET', `sys/mfa/method/totp/app/entity/${ada.entityId}`)).body.data['recovery_codes_left']
  assert.deepEqual([await status(one), await status(one), await told()], [404, 403, 1])
  assert.deepEqual([await status(two.toUpperCase().replaceAll('-', '')), await told()], [404, 0])
})

test('an admin sees the times of creation and use and the failures of a secret, and never its key', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app')
  await mfa.policy('p', 'path "cubbyhole/a" { capabilities = ["read"] mfa_methods = ["app"] }')
  const ada = await mfa.person('ada', ['p'])
  const at = `sys/mfa/method/totp/app/entity/${ada.entityId}`
  assert.equal((await world.ask('GET', at)).status, 404)
  const { secret } = await mfa.enrol('app', ada)
  await mfa.read(ada, 'cubbyhole/a', `app:${mfa.code(secret)}`)
  const usedAt = new Date(world.nowMs).toISOString()
  world.nowMs += 60_000
  const wrong = wrongCode(secret, world.nowMs)
  for (let count = 0; count < 5; count++) await mfa.read(ada, 'cubbyhole/a', `app:${wrong}`)
  assert.deepEqual((await world.ask('GET', at)).body.data, {
    confirmed: true,
    creation_time: usedAt,
    entity_id: ada.entityId,
    failed_attempts: 5,
    last_failed_time: new Date(world.nowMs).toISOString(),
    last_used_time: usedAt,
    locked: true,
    locked_seconds_left: 30,
    recovery_codes_left: 0,
  })
  assert.deepEqual((await world.ask('LIST', 'sys/mfa/method/totp/app/entity')).body.data['keys'], [ada.entityId])
  const unlock = { entity_id: ada.entityId }
  assert.equal((await world.ask('POST', 'sys/mfa/method/totp/app/admin-unlock', unlock)).status, 204)
  assert.equal((await mfa.read(ada, 'cubbyhole/a', `app:${mfa.code(secret)}`)).status, 404)
})

function ruleWith(method: unknown): string {
  return `path "secret/x" { capabilities = ["read"] mfa_methods = ["${String(method)}"] }`
}

test('a method in a policy is removed with force only, and the error names the policies', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  for (const name of ['phone', 'spare', 'third']) await mfa.method(name)
  const { id } = (await world.ask('GET', 'sys/mfa/method/totp/spare')).body.data
  await mfa.policy('by-name', ruleWith('phone'))
  await mfa.policy('also-by-name', ruleWith('phone'))
  await mfa.policy('by-id', ruleWith(id))
  for (const [path, names] of [
    ['sys/mfa/method/totp/phone', ['also-by-name', 'by-name']],
    ['sys/mfa/method/totp/spare', ['by-id']],
    [`identity/mfa/method/totp/${String(id)}`, ['by-id']],
  ] as const) {
    const { body, status } = await world.ask('DELETE', path)
    assert.equal(status, 400)
    for (const name of names) assert.match(body.errors[0] ?? '', new RegExp(`"${name}"`))
    assert.match(body.errors[0] ?? '', /force=true/)
    assert.equal((await world.ask('GET', path)).status, 200, 'nothing is changed')
  }
  assert.equal((await world.ask('DELETE', 'sys/mfa/method/totp/third')).status, 204)
  assert.equal((await world.ask('DELETE', `identity/mfa/method/totp/${String(id)}?force=true`)).status, 204)
  assert.equal((await world.ask('DELETE', 'sys/policies/acl/by-name')).status, 204)
  assert.equal((await world.ask('DELETE', 'sys/mfa/method/totp/phone')).status, 400)
  assert.equal((await world.ask('DELETE', 'sys/mfa/method/totp/phone?force=true')).status, 204)
  assert.equal((await world.ask('GET', 'sys/mfa/method/totp/phone')).status, 404)
})

test('a policy that names an unknown method is written with a warning', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('phone')
  const policy = `path "secret/x" { capabilities = ["read"] mfa_methods = ["phone"] }
path "secret/y" { capabilities = ["read"] mfa_methods = ["phone", "fone"] }`
  const warned = [
    '2:6: unknown MFA method "fone" in mfa_methods of path "secret/y": the rule denies every request until the method exists',
  ]
  for (const [method, path] of [
    ['PUT', 'sys/policies/acl/p'],
    ['PUT', 'sys/policy/p'],
    ['PATCH', 'sys/policies/acl/p'],
  ] as const) {
    const { body, status, text } = await world.ask(method, path, { policy })
    assert.deepEqual([status, body.warnings], [200, warned], text)
  }
  await mfa.method('fone')
  assert.equal((await world.ask('PUT', 'sys/policies/acl/p', { policy })).status, 204)
})

test('a request with the ID of a method needs the rights of its name', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('phone')
  const { id } = (await world.ask('GET', 'sys/mfa/method/totp/phone')).body.data
  await mfa.policy(
    'p',
    `path "sys/mfa/*" { capabilities = ["create", "read", "update", "delete", "list"] }
     path "sys/mfa/method/totp/phone" { capabilities = ["deny"] }
     path "sys/mfa/method/totp/phone/*" { capabilities = ["deny"] }
     path "sys/mfa/method/phone/*" { capabilities = ["deny"] }`,
  )
  const { entityId, token } = await mfa.person('ada', ['p'])
  for (const [method, rest, body] of [
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '', { issuer: 'stolen' }],
    ['GET', '/generate'],
    ['POST', '/admin-generate', { entity_id: entityId }],
    ['POST', '/admin-destroy', { entity_id: entityId }],
    ['LIST', '/entity'],
  ] as const) {
    for (const reference of ['phone', id]) {
      const path = `sys/mfa/method/totp/${String(reference)}${rest}`
      assert.equal((await world.ask(method, path, body, { token })).status, 403, `${method} ${path}`)
    }
  }
  const other = `sys/mfa/method/${String(id)}/admin-destroy`
  assert.equal((await world.ask('POST', other, { entity_id: entityId }, { token })).status, 403)
  assert.equal((await world.ask('GET', `sys/mfa/method/totp/${String(id)}`)).status, 200)
})
