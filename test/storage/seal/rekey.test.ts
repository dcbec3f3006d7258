/** Rekey: its authorization, when new shares take effect, and that no crash loses both the old and the new shares. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Rekey, type RekeyRequest, type RekeyResult } from '../../../src/storage/seal/rekey.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { newPgpKey } from '../../helpers/pgp-keys.ts'
import {
  asking,
  askingRecovery,
  FIRST,
  foreignShare,
  give,
  machineKey,
  restarted,
  type SealWorld,
  sealWorld,
} from '../barrier/seal-world.ts'
import { eventually } from '../../helpers/eventually.ts'

const HOUR_MS = 3_600_000
const PLAIN = { pgpKeys: [], backup: false, requireVerification: false }
const TO_TWO: RekeyRequest = { ...PLAIN, shares: 3, threshold: 2 }

async function rekeyed(rekey: Rekey, request: RekeyRequest, shares: readonly Buffer[]): Promise<RekeyResult> {
  const { nonce } = await rekey.start(request)
  for (const share of shares) {
    const outcome = await rekey.update(Buffer.from(share), nonce)
    if ('keys' in outcome) return outcome
  }
  throw new Error('there were too few shares')
}

async function opened(world: SealWorld): Promise<readonly Buffer[]> {
  const { keys } = await world.seal.initialise(asking(5, 3), FIRST)
  await give(world.seal, keys.slice(0, 3))
  return keys
}

test('after a rekey the new shares unseal, the previous ones do not, and the root key has changed', async (t) => {
  const world = await sealWorld(t, undefined, { responseMs: 1 })
  const keys = await opened(world)
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  const before = Buffer.from(world.store.get('core/root-key')?.value ?? [])
  assert.deepEqual(rekey.status, {
    nonce: '',
    started: false,
    threshold: 0,
    shares: 0,
    progress: 0,
    required: 3,
    fingerprints: [],
    backup: false,
    requiresVerification: false,
    verificationNonce: '',
  })
  const { nonce } = await rekey.start(TO_TWO)
  await assert.rejects(rekey.start(TO_TWO), /^Refusal: rekey already in progress$/)
  const [one = Buffer.alloc(0), two = Buffer.alloc(0), three = Buffer.alloc(0)] = keys
  await assert.rejects(
    rekey.update(Buffer.from(one), 'bad'),
    /incorrect nonce supplied; nonce for this rekey operation/,
  )
  await rekey.update(Buffer.from(one), nonce)
  await assert.rejects(rekey.update(Buffer.from(one), nonce), /given key has already been provided/)
  await rekey.update(foreignShare(99), nonce)
  await assert.rejects(rekey.update(Buffer.from(two), nonce), /^Refusal: rekey aborted: the key shares/)
  assert.deepEqual([rekey.status.progress, rekey.status.nonce], [0, nonce], 'the attempt goes on, without shares')
  rekey.end()
  await assert.rejects(rekey.update(Buffer.from(one), nonce), /no barrier rekey in progress/)

  const result = await rekeyed(rekey, TO_TWO, [three, one, two])
  assert.equal(result.keys.length, 3)
  assert.deepEqual([rekey.status.started, rekey.status.required], [false, 2])
  assert.notDeepEqual(Buffer.from(world.store.get('core/root-key')?.value ?? []), before)
  await eventually(() => world.store.get('core/root-key-before') === undefined)
  assert.equal(world.barrier.get('sys/first')?.toString(), 'first entry', 'open all the time')
  const { seal, barrier } = restarted(world)
  await assert.rejects(give(seal, keys.slice(0, 2)), /unseal failed/)
  assert.equal(await give(seal, result.keys.slice(1)), true)
  assert.equal(barrier.get('sys/first')?.toString(), 'first entry')
})

test('refuses an invalid rekey at the start', async (t) => {
  const world = await sealWorld(t)
  await opened(world)
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  const cases: [Partial<RekeyRequest>, RegExp][] = [
    [{ shares: 1, threshold: 2 }, /^invalid rekey seal configuration: threshold cannot be larger than shares$/],
    [{ pgpKeys: ['x'] }, /^incorrect number of PGP keys for rekey$/],
    [{ backup: true }, /^cannot request a backup of the new keys without providing PGP keys for encryption$/],
    [{ pgpKeys: ['x', 'y', '!'] }, /^PGP key [123]: error parsing PGP key/],
  ]
  for (const [wrong, text] of cases) {
    await assert.rejects(rekey.start({ ...TO_TWO, ...wrong }), (error: unknown) => {
      assert.ok(error instanceof Refusal && error.status === 400)
      assert.match(error.message, text)
      return true
    })
    assert.equal(rekey.status.started, false)
  }
  const recovery = new Rekey(world.seal, world.barrier, 'recovery')
  assert.throws(() => recovery.status, /recovery rekeying not supported/)
  await assert.rejects(recovery.start(TO_TWO), /recovery rekeying not supported/)
  await world.seal.seal()
  await assert.rejects(rekey.start(TO_TWO), /Vault is sealed/)
})

test('if the process ends before the response arrived, both sets of shares are valid until one is used', async (t) => {
  for (const first of ['old', 'new'] as const) {
    const world = await sealWorld(t)
    const old = await opened(world)
    const { keys } = await rekeyed(new Rekey(world.seal, world.barrier, 'unseal'), TO_TWO, old)
    // No goodbye: the process is gone.
    const next = restarted(world)
    assert.match(next.seal.status.warnings.join(), /a rekey was interrupted/)
    await assert.rejects(give(next.seal, [foreignShare(1), foreignShare(2), foreignShare(3)]), /unseal failed/)
    assert.equal(await give(next.seal, first === 'old' ? old.slice(2) : keys.slice(1)), true)
    assert.equal(next.barrier.get('sys/first')?.toString(), 'first entry')
    assert.deepEqual(next.seal.status.warnings, [])
    const { shares, threshold } = next.seal.status
    assert.deepEqual([shares, threshold], first === 'old' ? [5, 3] : [3, 2])
    const last = restarted(world)
    const [good, bad] = first === 'old' ? [old, keys] : [keys, old]
    await assert.rejects(give(last.seal, bad), /unseal failed/)
    last.seal.resetUnseal()
    assert.equal(await give(last.seal, good.slice(0, first === 'old' ? 3 : 2)), true)
  }
})

test('a seal and another rekey remove the previous shares', async (t) => {
  const world = await sealWorld(t)
  const old = await opened(world)
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  const { keys } = await rekeyed(rekey, TO_TWO, old)
  assert.deepEqual(world.seal.status.warnings, [])
  const again = await rekeyed(rekey, { ...PLAIN, shares: 1, threshold: 1 }, keys)
  await world.seal.seal()
  assert.equal(world.store.get('core/root-key-before'), undefined)
  const { seal } = restarted(world)
  await assert.rejects(give(seal, old.slice(0, 1)), /has 32 bytes/)
  assert.equal(await give(seal, again.keys), true)
})

test('with verification the new shares take effect once they were entered', async (t) => {
  const world = await sealWorld(t)
  const old = await opened(world)
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  assert.throws(() => rekey.verification, /no rekey verification in progress/)
  const result = await rekeyed(rekey, { ...TO_TWO, requireVerification: true }, old)
  assert.notEqual(result.verificationNonce, '')
  assert.equal(rekey.status.verificationNonce, result.verificationNonce)
  await assert.rejects(rekey.update(Buffer.from(old[0] ?? []), result.nonce), /verify them, or cancel/)
  assert.equal(await give(restarted(world).seal, old.slice(0, 3)), true, 'not yet')
  const [one = Buffer.alloc(0), two = Buffer.alloc(0)] = result.keys
  const { verificationNonce } = result
  await assert.rejects(rekey.verify(Buffer.from(one), result.nonce), /incorrect nonce/)
  assert.equal((await partOf(rekey.verify(Buffer.from(one), verificationNonce))).progress, 1)
  await assert.rejects(rekey.verify(Buffer.from(one), verificationNonce), /already been provided/)
  await assert.rejects(rekey.verify(foreignShare(9), verificationNonce), /^Refusal: rekey verification aborted/)
  rekey.restartVerification()
  const { nonce, progress } = rekey.verification
  assert.notEqual(nonce, verificationNonce)
  assert.equal(progress, 0)
  await rekey.verify(Buffer.from(one), nonce)
  assert.equal(await rekey.verify(Buffer.from(two), nonce), nonce)
  assert.equal(rekey.status.started, false)
  assert.equal(world.store.get('core/root-key-before'), undefined)
  const { seal } = restarted(world)
  await assert.rejects(give(seal, old.slice(0, 2)), /unseal failed/)
  assert.equal(await give(seal, [two, one]), true)
})

test('the time limit of a verification begins again when it is restarted', async (t) => {
  const world = await sealWorld(t)
  const old = await opened(world)
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  const { keys } = await rekeyed(rekey, { ...TO_TWO, requireVerification: true }, old)
  t.mock.timers.tick(20 * HOUR_MS)
  rekey.restartVerification()
  const { nonce } = rekey.verification
  await rekey.verify(Buffer.from(keys[0] ?? []), nonce)
  t.mock.timers.tick(23 * HOUR_MS)
  assert.equal(rekey.verification.progress, 1)
  t.mock.timers.tick(2 * HOUR_MS)
  assert.throws(() => rekey.verification, /no rekey verification in progress/)
})

async function partOf<T>(outcome: Promise<T | string>): Promise<T> {
  const part = await outcome
  if (typeof part === 'string') throw new Error('it is done already')
  return part
}

test('encrypts new shares to PGP keys and stores a backup of the messages', async (t) => {
  const world = await sealWorld(t)
  const old = await opened(world)
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  const [ann, bob] = [await newPgpKey('ann'), await newPgpKey('bob')]
  const pgpKeys = [ann.publicKey, bob.publicKey, ann.publicKey]
  const result = await rekeyed(rekey, { ...TO_TWO, pgpKeys, backup: true }, old)
  assert.deepEqual(result.fingerprints, [ann.fingerprint, bob.fingerprint, ann.fingerprint])
  const [one = Buffer.alloc(0), two = Buffer.alloc(0), three = Buffer.alloc(0)] = result.keys
  await assert.rejects(bob.decrypt(one))
  const shares = await Promise.all([ann.decrypt(three), bob.decrypt(two)])
  const backup = rekey.readBackup()
  assert.equal(backup?.nonce, result.nonce)
  assert.deepEqual(backup.keys, {
    [ann.fingerprint]: [one.toString('hex'), three.toString('hex')],
    [bob.fingerprint]: [two.toString('hex')],
  })
  const next = restarted(world)
  assert.equal(
    await give(
      next.seal,
      shares.map((share) => Buffer.from(share, 'hex')),
    ),
    true,
  )
  const then = new Rekey(next.seal, next.barrier, 'unseal')
  await then.deleteBackup()
  assert.equal(then.readBackup(), undefined)
})

test('with a static seal a rekey changes the recovery shares, or the root key without shares', async (t) => {
  const settings = machineKey('key-1')
  const world = await sealWorld(t, settings)
  const { recoveryKeys } = await world.seal.initialise(askingRecovery(3, 2), FIRST)
  await world.seal.autoUnseal()
  const recovery = new Rekey(world.seal, world.barrier, 'recovery')
  const { keys } = await rekeyed(recovery, { ...PLAIN, shares: 5, threshold: 3 }, recoveryKeys)
  assert.equal(keys.length, 5)
  assert.equal(world.seal.status.threshold, 3)
  // Its end was not seen: both sets prove who one is, until one of them did.
  const next = restarted(world, settings)
  await next.seal.autoUnseal()
  const root = new Rekey(next.seal, next.barrier, 'unseal')
  await assert.rejects(root.start({ ...TO_TWO, requireVerification: true }), /has no shares: PGP keys/)
  const before = Buffer.from(next.store.get('core/root-key')?.value ?? [])
  assert.deepEqual((await rekeyed(root, TO_TWO, recoveryKeys)).keys, [])
  assert.notDeepEqual(Buffer.from(next.store.get('core/root-key')?.value ?? []), before)
  assert.equal(next.seal.status.threshold, 2, 'the old ones were used')
  await assert.rejects(rekeyed(root, TO_TWO, keys), /rekey aborted/)
  const last = restarted(world, settings)
  assert.equal(await last.seal.autoUnseal(), true)
  assert.equal(last.barrier.get('sys/first')?.toString(), 'first entry')
})

test('an attempt ends on a seal and after an idle time', async (t) => {
  const world = await sealWorld(t, undefined, { idleMs: 1 })
  await world.seal.initialise(asking(1, 1), FIRST)
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  await assert.rejects(rekey.start(TO_TWO), /sealed/)
  const other = await sealWorld(t)
  const keys = await opened(other)
  const started = new Rekey(other.seal, other.barrier, 'unseal')
  await started.start(TO_TWO)
  await other.seal.seal()
  await give(other.seal, keys.slice(0, 3))
  assert.equal(started.status.started, false)
})
