/** The static key: its sources, its replacement, and migrations between the types of seal. */
import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { readStaticKey, sealSettings, type SealSettings } from '../../../src/storage/seal/static-key.ts'
import { Fault } from '../../../src/platform/errors.ts'
import {
  asking,
  askingRecovery,
  FIRST,
  foreignShare,
  give,
  machineKey,
  restarted,
  sealWorld,
} from '../barrier/seal-world.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const KEY = Buffer.from('0123456789abcdef0123456789ABCDEF')

test('reads a key from a file, a credential, a variable or the configuration, raw, in hex or in base64', (t) => {
  const directory = temporaryDirectory(t)
  mkdirSync(join(directory, 'credentials'))
  const forms = [KEY, `${KEY.toString('hex')}\n`, `${KEY.toString('base64')}\n`]
  forms.forEach((form, at) => {
    writeFileSync(join(directory, `${at}.key`), form, { mode: 0o600 })
    writeFileSync(join(directory, 'credentials', `key${at}`), form, { mode: 0o400 })
  })
  const environment = {
    CREDENTIALS_DIRECTORY: join(directory, 'credentials'),
    HEX: KEY.toString('hex'),
    BASE64: KEY.toString('base64'),
  }
  const sources = [
    ...forms.flatMap((_, at) => [`file://${directory}/${at}.key`, `credential://key${at}`]),
    'env://HEX',
    'env://BASE64',
    KEY.toString('hex'),
    KEY.toString('base64'),
  ]
  for (const source of sources) assert.deepEqual(readStaticKey({ id: 'k', source }, environment).key, KEY, source)
})

test('refuses a missing, malformed or world-readable key without its content in the error', (t) => {
  const directory = temporaryDirectory(t)
  const open = join(directory, 'open.key')
  writeFileSync(open, KEY)
  chmodSync(open, 0o644)
  writeFileSync(join(directory, 'short.key'), 'secret-but-short', { mode: 0o600 })
  writeFileSync(join(directory, 'large.key'), Buffer.alloc(100_000), { mode: 0o600 })
  const cases: [string, RegExp][] = [
    [`file://${open}`, /is world-readable; run: chmod 0600/],
    [`file://${directory}/missing.key`, /ENOENT/],
    [`file://${directory}/short.key`, /must have 32 bytes/],
    [`file://${directory}/large.key`, /is not a key: it has 100000 bytes/],
    [`file://${directory}`, /EISDIR|world-readable/],
    ['env://NOTHING', /variable NOTHING is not set/],
    ['env://SHORT', /must have 32 bytes/],
    ['credential://key', /no systemd credentials are available; add LoadCredential=key/],
    ['vault://x', /unknown source vault:\/\//],
    ['0123456789abcdef0123456789abcdef', /must have 32 bytes/],
  ]
  for (const [source, text] of cases) {
    assert.throws(
      () => readStaticKey({ id: 'k', source }, { SHORT: 'secret-but-short' }),
      (error: unknown) => {
        assert.ok(error instanceof Fault)
        assert.match(error.message, text)
        assert.doesNotMatch(error.message, /secret-but-short/)
        return true
      },
      source,
    )
  }
  const outside = { CREDENTIALS_DIRECTORY: directory }
  assert.throws(() => readStaticKey({ id: 'k', source: 'credential://../open.key' }, outside), /must not contain "\/"/)
})

test('incomplete settings are refused with the missing setting', () => {
  assert.deepEqual(sealSettings('shamir', {}), { type: 'shamir' })
  const given = { current_key_id: 'a', current_key: 'x', previous_key_id: 'b', previous_key: 'y', disabled: 'true' }
  assert.deepEqual(sealSettings('static', given), {
    type: 'static',
    disabled: true,
    current: { id: 'a', source: 'x' },
    previous: { id: 'b', source: 'y' },
  })
  assert.throws(() => sealSettings('static', {}), /needs current_key_id and current_key/)
  assert.throws(() => sealSettings('static', { ...given, previous_key: '' }), /must be set together/)
  assert.throws(() => sealSettings('static', { ...given, previous_key_id: 'a' }), /new current_key_id/)
})

test('a static seal unseals at each start, and its recovery shares do not unseal', async (t) => {
  const settings = machineKey('key-1')
  const world = await sealWorld(t, settings)
  assert.equal(await world.seal.autoUnseal(), false)
  await assert.rejects(
    world.seal.initialise(asking(5, 3), FIRST),
    /parameters secret_shares,secret_threshold not applic/,
  )
  await assert.rejects(world.seal.initialise(askingRecovery(0, 0), FIRST), /^Refusal: invalid recovery configuration/)
  const { keys, recoveryKeys } = await world.seal.initialise(askingRecovery(3, 2), FIRST)
  assert.deepEqual([keys.length, recoveryKeys.length], [0, 3])
  assert.equal(await world.seal.autoUnseal(), true)
  assert.equal(await world.seal.autoUnseal(), false)
  const { type, recoverySeal, threshold, shares } = world.seal.status
  assert.deepEqual([type, recoverySeal, threshold, shares], ['static', true, 2, 3])

  const next = restarted(world, settings)
  await assert.rejects(give(next.seal, recoveryKeys), /unseals with its static key/)
  assert.equal(await next.seal.autoUnseal(), true)
  assert.equal(next.barrier.get('sys/first')?.toString(), 'first entry')
  // Recovery shares prove who one is.
  assert.equal(next.seal.verifiers().length, 1)
  await next.seal.seal()

  for (const wrong of [
    machineKey('key-2'),
    { ...machineKey('key-2'), current: { id: 'key-1', source: '2'.repeat(64) } },
  ]) {
    const other = restarted(world, wrong)
    await assert.rejects(other.seal.autoUnseal(), /encrypted with the static key "key-1"; "key-[12]" cannot decrypt it/)
    assert.ok(other.barrier.isSealed)
  }
  const none = restarted(world)
  assert.equal(
    await none.seal.autoUnseal().catch((error: unknown) => String(error)),
    'Fault: the configuration has no static seal, but the root key is encrypted with the static key "key-1": ' +
      'add server.seal "static" with it',
  )
})

test('a new static key replaces the previous one at the first start with both', async (t) => {
  const world = await sealWorld(t, machineKey('key-1'))
  await world.seal.initialise(askingRecovery(1, 1), FIRST)
  const both: SealSettings = { ...machineKey('key-2'), previous: machineKey('key-1').current }
  assert.equal(await restarted(world, both).seal.autoUnseal(), true)
  const alone = restarted(world, machineKey('key-2'))
  assert.equal(await alone.seal.autoUnseal(), true)
  assert.deepEqual(alone.seal.status.warnings, [])
  await assert.rejects(restarted(world, machineKey('key-1')).seal.autoUnseal(), /encrypted with the static key "key-2"/)
})

test('migrates from key shares to a static key with consent, and the shares become recovery shares', async (t) => {
  const world = await sealWorld(t)
  const { keys } = await world.seal.initialise(asking(3, 2), FIRST)
  await assert.rejects(give(world.seal, keys, true), /can't perform a seal migration, no migration seal found/)
  const moving = restarted(world, machineKey('key-1'))
  assert.equal(moving.seal.status.migration, true)
  assert.equal(await moving.seal.autoUnseal(), false)
  await assert.rejects(give(moving.seal, keys), /migrate option not provided and seal migration is pending/)
  await assert.rejects(give(moving.seal, [foreignShare(1), foreignShare(2)], true), /unseal failed/)
  assert.equal(await give(moving.seal, keys.slice(0, 2), true), true)
  assert.equal(moving.seal.status.migration, false)
  assert.equal(moving.barrier.get('sys/first')?.toString(), 'first entry')
  assert.equal(moving.seal.verifiers()[0]?.matches(foreignShare(1).subarray(1)), false)

  const next = restarted(world, machineKey('key-1'))
  assert.equal(await next.seal.autoUnseal(), true)
  assert.deepEqual([next.seal.status.type, next.seal.status.threshold, next.seal.status.shares], ['static', 2, 3])

  // And back again: the machine's key is still there, but only to change over.
  const disabled: SealSettings = { ...machineKey('key-1'), disabled: true }
  const back = restarted(world, disabled)
  assert.equal(await back.seal.autoUnseal(), false)
  assert.equal(back.seal.status.migration, true)
  await assert.rejects(give(back.seal, [foreignShare(1), foreignShare(2)], true), /unseal failed/)
  assert.ok(back.barrier.isSealed)
  assert.equal(await give(back.seal, keys.slice(1), true), true)
  assert.equal(back.barrier.get('sys/first')?.toString(), 'first entry')
  assert.equal(back.barrier.get('core/recovery-key'), undefined)
  const last = restarted(world)
  assert.equal(last.seal.status.type, 'shamir')
  assert.equal(await give(last.seal, keys.slice(0, 2)), true)
  await assert.rejects(give(restarted(world, disabled).seal, keys, true), /no migration seal found/)
})

test('a migration that cannot be written leaves the barrier sealed and unchanged', async (t) => {
  const world = await sealWorld(t)
  const { keys } = await world.seal.initialise(asking(1, 1), FIRST)
  const unreadable: SealSettings = { ...machineKey('key-1'), current: { id: 'key-1', source: 'env://NOTHING' } }
  const moving = restarted(world, unreadable)
  await assert.rejects(give(moving.seal, keys, true), /NOTHING is not set/)
  assert.ok(moving.barrier.isSealed)
  assert.equal(await give(restarted(world).seal, keys), true)
})
