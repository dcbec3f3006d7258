/** A standby server: its root key is verified and held, and nothing is read or written before it takes over. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Rekey } from '../../../src/storage/seal/rekey.ts'
import { Seal } from '../../../src/storage/seal/seal.ts'
import { encrypt } from '../../../src/storage/barrier/cipher.ts'
import { StandbyKey } from '../../../src/storage/barrier/standby-key.ts'
import { KEY_BYTES, KEYRING_PATH, WrongKey } from '../../../src/storage/barrier/keyring.ts'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { decrypt } from '../../../src/storage/barrier/cipher.ts'
import { openRootKey, readConfig } from '../../../src/storage/barrier/seal-entries.ts'
import { standbyError } from '../../../src/storage/sqlite/store-error.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { asking, askingRecovery, FIRST, foreignShare, give, machineKey, sealWorld } from './seal-world.ts'

const NOT_OPEN = /Vault is sealed$/

test('key shares verify the root key of a secondary, which is held while the barrier stays sealed', async (t) => {
  const role = { isSecondary: false }
  const world = await sealWorld(t, undefined, { isSecondary: () => role.isSecondary })
  const { barrier, seal } = world
  const { keys } = await seal.initialise(asking(3, 2), FIRST)
  role.isSecondary = true
  const [first = Buffer.alloc(0), second = Buffer.alloc(0)] = keys
  await assert.rejects(give(seal, [foreignShare(1), foreignShare(2)]), /unseal failed, invalid key/)
  assert.ok(await give(seal, [first, second]))
  assert.equal(seal.status.sealed, false)
  assert.ok(barrier.isSealed && barrier.standby.isHeld)
  assert.throws(() => barrier.get('sys/first'), NOT_OPEN)
  await assert.rejects(barrier.commit({ puts: [], deletes: ['sys/first'] }), NOT_OPEN)
  assert.equal(await give(seal, [first]), false, 'there is nothing to open any more')
  barrier.openFromStandby()
  assert.equal(barrier.get('sys/first')?.toString(), 'first entry')
  assert.ok(!barrier.standby.isHeld)
  await seal.enterStandby()
  assert.ok(barrier.isSealed && barrier.standby.isHeld)
  await seal.seal()
  assert.equal(seal.status.sealed, true)
  assert.throws(() => barrier.openFromStandby(), NOT_OPEN)
})

test('a held key is dropped once it does not open the keyring', async (t) => {
  const { barrier, seal, store } = await sealWorld(t)
  const { keys } = await seal.initialise(asking(1, 1), FIRST)
  const [key = Buffer.alloc(0)] = keys
  await give(seal, [key])
  const standing = new Barrier(store)
  const secondary = new Seal(store, standing, { type: 'shamir' }, { isSecondary: () => true })
  assert.ok(await give(secondary, [key]))
  await barrier.rotate()
  assert.ok(standing.standby.fits(), 'another ring under the same key')
  const rekey = new Rekey(seal, barrier, 'unseal')
  const { nonce } = await rekey.start({
    shares: 1,
    threshold: 1,
    pgpKeys: [],
    backup: false,
    requireVerification: false,
  })
  await rekey.update(Buffer.from(key), nonce)
  assert.equal(standing.standby.fits(), false)
  assert.equal(secondary.status.sealed, true)
})

test('a MAC of a text depends on the barrier, not on the root key', async (t) => {
  const { barrier, seal } = await sealWorld(t)
  const { keys } = await seal.initialise(asking(1, 1), FIRST)
  await give(seal, keys)
  await seal.enterStandby()
  const code = barrier.standby.codeOf('purpose', 'text')
  assert.deepEqual(barrier.standby.codeOf('purpose', 'text'), code)
  assert.notDeepEqual(barrier.standby.codeOf('purpose', 'texts'), code)
  assert.notDeepEqual(barrier.standby.codeOf('another', 'text'), code)
  barrier.openFromStandby()
  await barrier.rotate()
  await seal.enterStandby()
  assert.deepEqual(barrier.standby.codeOf('purpose', 'text'), code)
  const other = await sealWorld(t)
  await give(other.seal, (await other.seal.initialise(asking(1, 1), FIRST)).keys)
  await other.seal.enterStandby()
  assert.notDeepEqual(other.barrier.standby.codeOf('purpose', 'text'), code)
})

test('refuses a MAC with a keyring that has no set key', async (t) => {
  const { store } = await sealWorld(t)
  const key = Buffer.alloc(32, 9)
  const keys = [{ term: 1, key: Buffer.alloc(32, 1).toString('base64'), installedAtMs: 0 }]
  const ring = Buffer.from(JSON.stringify({ format: 1, keys }))
  const value = encrypt(KEYRING_PATH, ring, { term: 0, key })
  await store.commit({ puts: [{ path: KEYRING_PATH, value }], deletes: [] })
  const held = new StandbyKey(store)
  held.hold(key)
  assert.throws(() => held.codeOf('purpose', 'text'), { status: 503, message: /written by an older version/ })
})

test('auto-unseal of a secondary only holds the root key, and recovery shares are verified while it is sealed', async (t) => {
  const settings = machineKey('key1')
  const { barrier, seal, store } = await sealWorld(t, settings)
  const { recoveryKeys } = await seal.initialise(askingRecovery(2, 2), FIRST)
  assert.ok(await seal.autoUnseal())
  const standing = new Barrier(store)
  const secondary = new Seal(store, standing, settings, { isSecondary: () => true })
  assert.ok(await secondary.autoUnseal())
  assert.ok(standing.isSealed && standing.standby.isHeld)
  const [proof] = secondary.verifiers()
  assert.equal(proof?.matches(Buffer.alloc(32)), false)
  assert.equal(recoveryKeys.length, 2)
  assert.ok(standing.standby.isHeld, 'looking at the proof opens nothing')
  const changing = new Seal(store, new Barrier(store), { type: 'shamir' }, { isSecondary: () => true })
  await assert.rejects(give(changing, [foreignShare(1)]), (error: unknown) => error instanceof Refusal)
  assert.ok(!barrier.isSealed)
})

test('a standby follows rekeys of the active server, and the stored successors are removed after a minute', async (t) => {
  const { barrier: _, seal, store } = await sealWorld(t)
  const { keys } = await seal.initialise(asking(1, 1), FIRST)
  const time = { nowMs: 0 }
  const active = new Barrier(store, { hasStandbys: true, now: () => time.nowMs })
  const standing = new Barrier(store)
  const rootKey = openRootKey(store, keys[0] ?? Buffer.alloc(0))
  assert.ok(rootKey)
  active.unseal(rootKey)
  standing.standby.hold(rootKey)
  await active.rekey(randomBytes(KEY_BYTES))
  await active.rekey(randomBytes(KEY_BYTES))
  assert.ok(standing.standby.fits(), 'after two rekeys')
  const paths = store.paths('core/root-key-successor/')
  assert.equal(paths.length, 2)
  for (const path of paths)
    assert.throws(() => decrypt(path, store.get(path)?.value ?? Buffer.alloc(0), () => randomBytes(32)))
  await active.removeSuccessors()
  time.nowMs += 59_999
  await active.removeSuccessors()
  assert.equal(store.paths('core/root-key-successor/').length, 2)
  time.nowMs += 1
  await active.removeSuccessors()
  assert.deepEqual(store.paths('core/root-key-successor/'), [])
  active.seal()
  standing.openFromStandby()
  assert.equal(standing.get('sys/first')?.toString(), 'first entry')
  const late = new Barrier(store)
  assert.throws(() => late.standby.hold(rootKey), WrongKey)
})

test('a server that enters standby does not remove key shares of a later rekey', async (t) => {
  const { barrier, seal, store } = await sealWorld(t, undefined, { responseMs: 1 })
  const { keys } = await seal.initialise(asking(1, 1), FIRST)
  const [key = Buffer.alloc(0)] = keys
  await give(seal, [key])
  const rekey = new Rekey(seal, barrier, 'unseal')
  const request = { shares: 1, threshold: 1, pgpKeys: [], backup: false, requireVerification: false }
  const { nonce } = await rekey.start(request)
  const commit = store.commit.bind(store)
  await rekey.update(Buffer.from(key), nonce)
  // Its commits are refused: another server is active.
  store.commit = () => Promise.reject(standbyError())
  await seal.enterStandby()
  store.commit = commit
  await sleep(20)
  assert.ok(readConfig(store)?.before, 'the active server decides about both sets of shares')
})

test('a server whose takeover fails keeps the root key', async (t) => {
  const { barrier, seal, store } = await sealWorld(t)
  const { keys } = await seal.initialise(asking(1, 1), FIRST)
  await give(seal, keys)
  await seal.enterStandby()
  const first = store.get('sys/first')?.value
  assert.ok(first)
  await store.commit({ puts: [], deletes: ['sys/first'] })
  assert.throws(() => barrier.openFromStandby(), /changed by another program/)
  assert.deepEqual([barrier.isSealed, barrier.standby.isHeld], [true, true])
  await store.commit({ puts: [{ path: 'sys/first', value: first }], deletes: [] })
  barrier.openFromStandby()
  assert.equal(barrier.get('sys/first')?.toString(), 'first entry')
})
