/** Rotation of the root key and of static roles, and what a failure at each step leaves. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CloudMount } from '../../../src/engines/cloud/mount/cloud-mount.ts'
import { keyIntentPut, newKeyIntent } from '../../../src/engines/cloud/intents/key-intent.ts'
import { throttled, unavailable } from '../../helpers/aws/endpoint.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'
import { eventually } from '../../helpers/eventually.ts'

const keyIds = (user: { keys: readonly { id: string }[] }) => user.keys.map(({ id }) => id)

/** Waits for a rotation, because a round may be in progress that began before the clock was moved. */
function untilRotated(world: CloudWorld, isRotated: () => boolean | Promise<boolean>): Promise<boolean> {
  const work = async () => {
    await world.work()
    return isRotated()
  }
  return eventually(work, 'the key is rotated', 30_000)
}

async function staticWorld(t: Parameters<typeof CloudWorld.open>[0]) {
  const world = await CloudWorld.open(t)
  const user = world.aws.account.addUser('app')
  const write = (body: object, name = 'app') => world.ask('POST', `cloud/static-roles/${name}`, body)
  const creds = async (name = 'app') => (await world.ask('GET', `cloud/static-creds/${name}`)).body.data
  return { world, user, write, creds }
}

test('rotate-root replaces the key and the engine continues', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const { body } = await world.good('POST', 'cloud/config/rotate-root')
  assert.deepEqual(Object.keys(body.data), ['access_key'])
  assert.notEqual(body.data['access_key'], world.rootKey.id)
  assert.deepEqual(keyIds(world.rootUser), [body.data['access_key']])
  assert.equal((await world.good('GET', 'cloud/config/root')).body.data['access_key'], body.data['access_key'])
  await world.good('GET', 'cloud/creds/app?wait=false')
  assert.equal((await world.ask('GET', 'cloud/config/rotate-root')).status, 405)
})

test('rotate-root refuses a missing configuration, missing keys and a second key', async (t) => {
  const world = await CloudWorld.open(t)
  world.aws.account.addKey(world.rootUser)
  const second = await world.ask('POST', 'cloud/config/rotate-root')
  assert.equal(second.status, 400)
  assert.match(
    second.body.errors[0] ?? '',
    /^error calling CreateAccessKey: the configured access key must be the only one of user root-user: delete AKIA\w+ first$/,
  )
  assert.equal(world.rootUser.keys.length, 2)
  await world.good('POST', 'cloud/config/root', { access_key: '', secret_key: '' })
  const none = await world.ask('POST', 'cloud/config/rotate-root')
  assert.deepEqual(none.body.errors, ['Cannot call config/rotate-root when either access_key or secret_key is empty'])
  await world.good('POST', 'sys/mounts/other', { type: 'aws' })
  const missing = await world.ask('POST', 'other/config/rotate-root')
  assert.deepEqual(missing.body.errors, ['no configuration found for config/root'])
})

test('rotate-root recovers from a lost response at each step', async (t) => {
  const world = await CloudWorld.open(t)
  for (const action of ['GetUser', 'ListAccessKeys', 'CreateAccessKey', 'DeleteAccessKey']) {
    for (const when of ['before', 'after'] as const) {
      world.aws.script(action, { isCut: true, when })
      await world.ask('POST', 'cloud/config/rotate-root')
      world.pass(20)
      await world.work()
      const { body } = await world.good('GET', 'cloud/config/root')
      assert.deepEqual(keyIds(world.rootUser), [body.data['access_key']], `${action} ${when}`)
      world.aws.unscript()
      const rotated = await world.good('POST', 'cloud/config/rotate-root')
      assert.deepEqual(keyIds(world.rootUser), [rotated.body.data['access_key']], `${action} ${when}`)
    }
  }
})

test('rotate-root: where the old key cannot be deleted the new one is in force, with a warning, and it is deleted later', async (t) => {
  const world = await CloudWorld.open(t)
  world.aws.script('DeleteAccessKey', { error: new AwsError('AccessDenied', 'not allowed', 403), times: 10 })
  const { body } = await world.good('POST', 'cloud/config/rotate-root')
  assert.match(
    String(body.warnings),
    new RegExp(`the old access key ${world.rootKey.id} will be deleted later: not allowed`),
  )
  assert.deepEqual(keyIds(world.rootUser), [world.rootKey.id, body.data['access_key']])
  assert.equal((await world.good('GET', 'cloud/config/root')).body.data['access_key'], body.data['access_key'])
  world.aws.unscript()
  world.pass(20)
  await world.work()
  assert.deepEqual(keyIds(world.rootUser), [body.data['access_key']])
})

test('two concurrent rotations succeed and leave one key', async (t) => {
  const world = await CloudWorld.open(t)
  const answers = await Promise.all([1, 2, 3].map(() => world.good('POST', 'cloud/config/rotate-root')))
  assert.deepEqual(keyIds(world.rootUser), [answers.at(-1)?.body.data['access_key']])
})

test('rotates the root key automatically by period, with retries, unless disabled', async (t) => {
  const world = await CloudWorld.open(t)
  const key = () => keyIds(world.rootUser)[0]
  await world.good('POST', 'cloud/config/root', { rotation_period: 60 })
  const first = key()
  world.pass(59)
  await world.work()
  assert.equal(key(), first)
  world.aws.script('CreateAccessKey', { error: throttled() })
  world.pass(1)
  await world.work()
  assert.equal(key(), first)
  world.pass(13)
  await world.work()
  const second = key()
  assert.notEqual(second, first)
  assert.equal((await world.good('GET', 'cloud/config/root')).body.data['access_key'], second)
  await world.good('POST', 'cloud/config/root', { disable_automated_rotation: true })
  world.pass(600)
  await world.work()
  assert.equal(key(), second)
})

test('after a success the first retry of the root key is soon again', async (t) => {
  const world = await CloudWorld.open(t)
  const key = () => keyIds(world.rootUser)[0]
  await world.good('POST', 'cloud/config/root', { rotation_period: 60 })
  const first = key()
  for (const seconds of [60, 13, 25]) {
    world.aws.script('CreateAccessKey', { error: throttled() })
    world.pass(seconds)
    await world.work()
  }
  world.pass(50)
  await untilRotated(world, () => key() !== first)
  const second = key()
  world.aws.script('CreateAccessKey', { error: throttled() })
  world.pass(60)
  await world.work()
  assert.equal(key(), second)
  world.pass(13)
  await untilRotated(world, () => key() !== second)
})

test('creates and reads a static role and refuses invalid ones', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  const refused: readonly (readonly [object, number, RegExp])[] = [
    [{ rotation_period: 60 }, 400, /^missing "username" parameter$/],
    [{ username: 'app' }, 400, /^missing "rotation_period" parameter$/],
    [
      { username: 'app', rotation_period: '59s' },
      400,
      /^role rotation period out of range: must be greater than 60\.00 seconds$/,
    ],
    [{ username: 'none', rotation_period: 60 }, 400, /^unable to validate username "none": NoSuchEntity/],
    [
      { username: 'app', rotation_period: 60, assume_role_arn: 'arn:aws:iam::1:role/r' },
      400,
      /^assume_role_session_name is required when assume_role_arn is set$/,
    ],
    [
      { username: 'app', rotation_period: 60, assume_role_session_name: 'ab' },
      400,
      /^assume_role_arn is required when assume_role_session_name is set$/,
    ],
    [
      { username: 'app', rotation_period: 60, assume_role_arn: 'x', assume_role_session_name: 'ab' },
      400,
      /^invalid assume_role_arn parameter: arn: invalid prefix$/,
    ],
  ]
  for (const [body, status, text] of refused) {
    const answer = await write(body)
    assert.equal(answer.status, status, answer.text)
    assert.match(answer.body.errors[0] ?? '', text)
  }
  assert.equal((await world.ask('GET', 'cloud/static-roles/app')).status, 404)
  assert.equal((await world.ask('GET', 'cloud/static-creds/app')).status, 404)
  const made = await write({ username: 'app', rotation_period: '1d' })
  const shown = {
    assume_role_arn: '',
    assume_role_session_name: '',
    external_id: '',
    id: user.id,
    name: 'app',
    rotation_period: 86_400,
    username: 'app',
  }
  assert.deepEqual([made.status, made.body.data], [200, shown])
  assert.deepEqual((await world.good('GET', 'cloud/static-roles/app')).body.data, shown)
  const { access_key: id, expiration, secret_key: secret } = await creds()
  assert.deepEqual([id, secret], [user.keys[0]?.id, user.keys[0]?.secret])
  assert.equal(expiration, new Date(world.world.nowMs + 86_400_000).toISOString())
  assert.deepEqual((await world.good('LIST', 'cloud/static-roles')).body.data, { keys: ['app'] })
})

test('a new rotation period starts now and changes the expiration', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  await write({ username: 'app', rotation_period: '24h' })
  for (const [period, seconds] of [
    ['19m', 1140],
    ['40h', 144_000],
  ] as const) {
    world.pass(5)
    const { body } = await write({ rotation_period: period })
    assert.equal(body.data['rotation_period'], seconds)
    assert.equal((await creds())['expiration'], new Date(world.world.nowMs + seconds * 1000).toISOString())
  }
  assert.equal(user.keys.length, 1)
  world.aws.account.users.delete('app')
  world.aws.account.addUser('app')
  assert.match(
    (await write({ username: 'app' })).body.errors[0] ?? '',
    /^AWS GetUser returned a user, but the ID did not match/,
  )
})

test('a rotation deletes the oldest of two keys', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  await write({ username: 'app', rotation_period: 60 })
  const seen = [(await creds())['access_key']]
  for (let round = 0; round < 3; round++) {
    world.pass(59)
    await world.work()
    assert.equal((await creds())['access_key'], seen.at(-1))
    world.pass(1)
    await world.work()
    seen.push((await creds())['access_key'])
    assert.deepEqual(keyIds(user), seen.slice(-2))
  }
  assert.equal(new Set(seen).size, 4)
})

test('retries a failed rotation, continues others, and resumes after a restart', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  const other = world.aws.account.addUser('other')
  await write({ username: 'app', rotation_period: 60 })
  await write({ username: 'other', rotation_period: 60 }, 'other')
  const [first, second] = [await creds(), await creds('other')]
  user.denied.add('x')
  world.aws.account.users.delete('app')
  world.pass(60)
  await world.work()
  assert.notEqual((await creds('other'))['access_key'], second['access_key'])
  assert.equal((await creds())['access_key'], first['access_key'])
  const attempts = world.aws.actions().length
  await world.work()
  assert.equal(world.aws.actions().length, attempts, 'a pause follows the failure')
  world.aws.account.users.set('app', user)
  await world.world.core.seal()
  world.world.unseal()
  await world.work()
  assert.notEqual((await creds())['access_key'], first['access_key'])
  assert.deepEqual([user.keys.length, other.keys.length], [2, 2])
})

test('after a success the first retry of a static role is soon again', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  await write({ username: 'app', rotation_period: 60 })
  const key = async () => (await creds())['access_key']
  const first = await key()
  world.aws.account.users.delete('app')
  for (const seconds of [60, 13, 25]) {
    world.pass(seconds)
    await world.work()
  }
  world.aws.account.users.set('app', user)
  world.pass(50)
  await untilRotated(world, async () => (await key()) !== first)
  const second = await key()
  await world.work()
  world.aws.account.users.delete('app')
  world.pass(60)
  await world.work()
  world.aws.account.users.set('app', user)
  world.pass(13)
  await untilRotated(world, async () => (await key()) !== second)
})

test('a lost response at each step of a rotation leaves no unknown key', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  for (const action of ['GetUser', 'ListAccessKeys', 'CreateAccessKey']) {
    for (const fault of [
      { isCut: true },
      { isCut: true, when: 'after' },
      { error: unavailable(), when: 'after' },
    ] as const) {
      world.aws.script(action, { ...fault, times: 2 })
      const answer = await write({ username: 'app', rotation_period: 60 })
      world.aws.unscript()
      world.pass(31)
      await world.work()
      const known = answer.status === 200 ? [(await creds())['access_key']] : []
      assert.deepEqual(keyIds(user), known, `${action} ${JSON.stringify(fault)}`)
      await world.good('DELETE', 'cloud/static-roles/app')
      assert.deepEqual(keyIds(user), [])
    }
  }
})

test('removing a static role deletes its key first and keeps the user and other keys', async (t) => {
  const { user, world, write } = await staticWorld(t)
  await world.good('DELETE', 'cloud/static-roles/none')
  assert.deepEqual(world.aws.actions(), [])
  const { id } = world.aws.account.addKey(user)
  await write({ username: 'app', rotation_period: 60 })
  world.aws.script('DeleteAccessKey', { error: new AwsError('AccessDenied', 'no', 403) })
  const answer = await world.ask('DELETE', 'cloud/static-roles/app')
  assert.deepEqual(
    [answer.status, answer.body.errors],
    [500, ['failed to clean credentials while deleting role "app": couldn\'t delete from IAM: AccessDenied: no']],
  )
  await world.good('GET', 'cloud/static-roles/app')
  await world.good('DELETE', 'cloud/static-roles/app')
  assert.deepEqual(keyIds(user), [id])
  assert.equal((await world.ask('GET', 'cloud/static-creds/app')).status, 404)
})

test('removing a static role deletes its previous key too', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  await write({ username: 'app', rotation_period: 60 })
  const { access_key: before } = await creds()
  world.pass(60)
  await world.work()
  assert.deepEqual(keyIds(user), [before, (await creds())['access_key']])
  await world.good('DELETE', 'cloud/static-roles/app')
  assert.deepEqual(keyIds(user), [])
})

test('a damaged static role does not prevent other rotations and is retried', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  const other = world.aws.account.addUser('other')
  await write({ username: 'app', rotation_period: 60 })
  const storage = world.world.core.open.mounts.get('cloud/')?.storage
  assert.ok(storage)
  const path = `static-role/${storage.list('static-role/')[0]}`
  const value = storage.get(path)
  assert.ok(value)
  await write({ username: 'other', rotation_period: 60 }, 'other')
  await storage.commit({ puts: [{ path, value: Buffer.from('{') }], deletes: [] })
  world.pass(60)
  await world.work()
  assert.equal(other.keys.length, 2)
  await storage.commit({ puts: [{ path, value }], deletes: [] })
  world.pass(301)
  await world.work()
  assert.equal(user.keys.length, 2)
  assert.equal(keyIds(user).at(-1), (await creds())['access_key'])
})

test('a failed round stops neither concurrent nor later rotations', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  await write({ username: 'app', rotation_period: 60 })
  await world.good('POST', 'cloud/config/root', { rotation_period: 60 })
  const [rootKey, key] = [keyIds(world.rootUser)[0], (await creds())['access_key']]
  const storage = world.world.core.open.mounts.get('cloud/')?.storage ?? assert.fail()
  world.pass(60)
  t.mock.method(storage, 'list', () => {
    throw new Error('disk I/O error')
  })
  await world.work()
  assert.match(JSON.stringify(world.world.lines), /periodic work of an engine failed[^}]*disk I\/O error/)
  assert.equal((await creds())['access_key'], key)
  t.mock.restoreAll()
  await eventually(() => keyIds(world.rootUser)[0] !== rootKey, 'the root key is rotated beside it')
  world.pass(10)
  await untilRotated(world, async () => (await creds())['access_key'] !== key)
  assert.equal(keyIds(user).at(-1), (await creds())['access_key'])
})

test('assumes a role for a static role of another account', async (t) => {
  const { world, write } = await staticWorld(t)
  const arn = world.aws.account.addRole('cross', { principals: ['*'], externalId: 'ext' })
  const body = { username: 'app', rotation_period: 60, assume_role_arn: arn, assume_role_session_name: 'outpost' }
  const refused = await write(body)
  assert.match(
    refused.body.errors[0] ?? '',
    /^AccessDenied: failed to assume role "arn:aws:iam::123456789012:role\/cross"|failed to assume role/,
  )
  await world.good('POST', 'cloud/static-roles/app', { ...body, external_id: 'ext' })
  const made = world.aws.journal.find(({ action, outcome }) => action === 'CreateAccessKey' && outcome === '')
  assert.match(made?.keyId ?? '', /^ASIA/)
})

test('an intent of a lost key never deletes a stored key', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  await write({ username: 'app', rotation_period: 60 })
  // No answer, three times: an unknown key may exist, and its intent stays for half a minute.
  world.aws.script('CreateAccessKey', { isCut: true, times: 3 })
  assert.equal((await world.ask('POST', 'cloud/config/rotate-root')).status, 502)
  const { body } = await world.good('POST', 'cloud/config/rotate-root')
  world.aws.script('CreateAccessKey', { isCut: true, times: 3 })
  world.pass(60)
  await world.work()
  world.pass(13)
  await world.work()
  const { access_key: given } = await creds()
  for (let round = 0; round < 4; round++) {
    world.pass(10)
    await world.work()
  }
  assert.deepEqual(keyIds(world.rootUser), [body.data['access_key']])
  assert.ok(keyIds(user).includes(String(given)), 'the issued key exists')
})

test('an intent of a lost key spares all stored keys', async (t) => {
  const { creds, user, world, write } = await staticWorld(t)
  await write({ username: 'app', rotation_period: 60 })
  const storage = world.world.core.open.mounts.get('cloud/')?.storage
  assert.ok(storage)
  const notes = [user.name, world.rootUser.name].flatMap((username) =>
    (['make', 'delete'] as const).map((kind) => {
      const keys = kind === 'make' ? [] : keyIds(world.aws.account.user(username))
      return newKeyIntent({ kind, username, keys, account: null, createdAtMs: world.world.nowMs })
    }),
  )
  await storage.commit({ puts: notes.map(keyIntentPut), deletes: [] })
  const lost = world.aws.account.addKey(user)
  await world.work()
  assert.ok(!keyIds(user).includes(lost.id))
  assert.deepEqual(keyIds(user), [(await creds())['access_key']])
  assert.deepEqual(keyIds(world.rootUser), [world.rootKey.id])
})

test('serializes the search for a lost key and the creation of a new one', async (t) => {
  const { user, world } = await staticWorld(t)
  const place = world.world.core.open.mounts.get('cloud/')
  assert.ok(place)
  const { facts: mount, storage } = place
  const whose = { username: user.name, account: null }
  const note = { kind: 'make' as const, ...whose, keys: [], createdAtMs: world.world.nowMs }
  await storage.commit({ puts: [keyIntentPut(newKeyIntent(note))], deletes: [] })
  const { keys } = CloudMount.of({ mount, storage })
  await keys.runExclusive(whose, () => world.work())
  assert.deepEqual(world.aws.actions(), [], 'the next round looks')
  const [asked, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  world.aws.chaos = () => {
    asked.resolve()
    return { gate: answered.promise }
  }
  const looking = world.work()
  await asked.promise
  let isMaking = false
  const making = keys.runExclusive(whose, async () => void (isMaking = true))
  await new Promise(setImmediate)
  assert.equal(isMaking, false)
  answered.resolve()
  await Promise.all([looking, making])
  assert.equal(isMaking, true)
})

test('deletes a lost key later if AWS refuses it or does not list it yet', async (t) => {
  const { world } = await staticWorld(t)
  const refused = new AwsError('AccessDenied', 'no', 403)
  const settle = async () => {
    world.aws.unscript()
    for (let round = 0; round < 5; round++) {
      world.pass(16)
      await world.work()
    }
    assert.deepEqual(keyIds(world.rootUser).length, 1)
  }
  await t.test('its deletion is refused', async () => {
    world.aws.script('CreateAccessKey', { isCut: true, when: 'after' })
    world.aws.script('DeleteAccessKey', { error: refused })
    assert.equal((await world.ask('POST', 'cloud/config/rotate-root')).status, 400)
    assert.equal(world.rootUser.keys.length, 2)
    await settle()
  })
  await t.test('the next rotation does not see it and is refused a third key', async () => {
    world.aws.script('CreateAccessKey', { isCut: true, when: 'after' })
    world.aws.script('ListAccessKeys', { times: 1 })
    world.aws.script('ListAccessKeys', { hidesKeysMs: 15_000, times: 20 })
    assert.ok((await world.ask('POST', 'cloud/config/rotate-root')).status >= 400)
    assert.ok((await world.ask('POST', 'cloud/config/rotate-root')).status >= 400)
    assert.equal(world.rootUser.keys.length, 2)
    await settle()
  })
})

test('a user has at most one static role, and that of config/root none', async (t) => {
  const { user, world, write } = await staticWorld(t)
  const answers = await Promise.all(
    ['app', 'other'].map((name) => write({ username: 'app', rotation_period: 60 }, name)),
  )
  const refused = answers.filter(({ status }) => status === 400)
  assert.equal(refused.length, 1)
  assert.match(refused[0]?.text ?? '', /user \\"app\\" already has the static role \\"(app|other)\\"/)
  assert.equal(user.keys.length, 1)
  const root = await write({ username: world.rootUser.name, rotation_period: 60 }, 'root')
  assert.match(root.body.errors[0] ?? '', /^user "root-user" is the user of config\/root: /)
  assert.deepEqual(keyIds(world.rootUser), [world.rootKey.id])
})
