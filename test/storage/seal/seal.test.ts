/** The seal on a real store: initialization, unsealing and its errors. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { combine } from 'shamir-secret-sharing'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { openRootKey } from '../../../src/storage/barrier/seal-entries.ts'
import { Rekey } from '../../../src/storage/seal/rekey.ts'
import { Seal } from '../../../src/storage/seal/seal.ts'
import { decodeShare } from '../../../src/storage/seal/shares.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { type Store, StoreError } from '../../../src/storage/store/store.ts'
import {
  asking,
  askingRecovery,
  FIRST,
  foreignShare,
  give,
  restarted,
  sealWorld,
  SHAMIR,
} from '../barrier/seal-world.ts'
import { eventually } from '../../helpers/eventually.ts'

const refused = (pattern: RegExp) => (error: unknown) => {
  assert.ok(error instanceof Refusal, String(error))
  assert.equal(error.status, 400)
  assert.match(error.message, pattern)
  return true
}

test('any three of five shares unseal, two do not', async (t) => {
  const world = await sealWorld(t)
  assert.deepEqual(world.seal.status, {
    type: 'shamir',
    initialised: false,
    sealed: true,
    threshold: 0,
    shares: 0,
    progress: 0,
    nonce: '',
    migration: false,
    recoverySeal: false,
    warnings: [],
  })
  await assert.rejects(give(world.seal, [foreignShare(1)]), refused(/^Vault is not initialized$/))
  const { keys, recoveryKeys, rootToken } = await world.seal.initialise(asking(5, 3), FIRST)
  assert.equal(rootToken, FIRST.rootToken)
  assert.deepEqual(recoveryKeys, [])
  assert.deepEqual(new Set(keys.map((key) => key.length)), new Set([33]))
  assert.ok(world.barrier.isSealed)
  await assert.rejects(world.seal.initialise(asking(1, 1), FIRST), refused(/^Vault is already initialized$/))

  for (const chosen of [
    [0, 1, 2],
    [4, 2, 0],
    [3, 1, 4],
  ]) {
    const { seal, barrier } = restarted(world)
    const three = chosen.map((at) => keys[at] ?? Buffer.alloc(0))
    assert.equal(await give(seal, three.slice(0, 2)), false)
    const { progress, nonce, threshold, shares } = seal.status
    assert.deepEqual({ progress, threshold, shares }, { progress: 2, threshold: 3, shares: 5 })
    assert.match(nonce, /^[0-9a-f-]{36}$/)
    // A share that was given already counts once.
    assert.equal(await give(seal, three.slice(1, 2)), false)
    assert.equal(seal.status.progress, 2)
    assert.equal(await give(seal, three.slice(2)), true)
    assert.equal(barrier.get('sys/first')?.toString(), 'first entry')
    assert.deepEqual([seal.status.progress, seal.status.nonce], [0, ''])
    // Shares for an open barrier change nothing.
    assert.equal(await give(seal, [foreignShare(1)]), false)
    await seal.seal()
    assert.ok(barrier.isSealed)
  }
})

test('a single share is the key itself', async (t) => {
  const world = await sealWorld(t)
  const { keys } = await world.seal.initialise(asking(1, 1), FIRST)
  assert.deepEqual(
    keys.map((key) => key.length),
    [32],
  )
  await assert.rejects(give(world.seal, [foreignShare(1)]), refused(/has 32 bytes/))
  await assert.rejects(give(world.seal, [foreignShare(1).subarray(1)]), refused(/^unseal failed, invalid key/))
  assert.equal(await give(world.seal, keys), true)
})

test('wrong shares, a repeated share and shares of another server fail with the same error', async (t) => {
  const [world, other] = [await sealWorld(t), await sealWorld(t)]
  const { keys } = await world.seal.initialise(asking(5, 3), FIRST)
  const { keys: theirs } = await other.seal.initialise(asking(5, 3), FIRST)
  const [one = Buffer.alloc(0), two = Buffer.alloc(0), three = Buffer.alloc(0)] = keys
  const sets = {
    'a wrong one': [one, foreignShare(77), two],
    'one with the x of another': [one, two, foreignShare(one[32] ?? 0)],
    'one with the x that is the secret’s': [one, two, foreignShare(0)],
    'of another server': theirs.slice(0, 3),
    'one of another server': [one, two, theirs[0] ?? one],
    'too many, one of them wrong': [one, foreignShare(77), two, three].slice(0, 3),
  }
  const texts = new Set<string>()
  for (const [name, shares] of Object.entries(sets)) {
    await assert.rejects(
      give(world.seal, shares),
      (error: unknown) => {
        texts.add(error instanceof Error ? error.message : '')
        return refused(/^unseal failed, invalid key/)(error)
      },
      name,
    )
    assert.equal(world.seal.status.progress, 0, name)
    assert.ok(world.barrier.isSealed)
  }
  assert.equal(texts.size, 1, 'one text for all')
  assert.equal(await give(world.seal, [one, two, three]), true)
})

test('validates an initialization before anything is created', async (t) => {
  const world = await sealWorld(t)
  const cases: [number, number, RegExp][] = [
    [0, 0, /^invalid seal configuration: shares must be at least one$/],
    [5, 0, /: threshold must be at least one$/],
    [3, 5, /: threshold cannot be larger than shares$/],
    [5, 1, /: threshold must be greater than one for multiple shares$/],
    [256, 3, /: shares must be less than 256$/],
    [-1, 3, /: shares must be at least one$/],
  ]
  for (const [shares, threshold, text] of cases) {
    await assert.rejects(world.seal.initialise(asking(shares, threshold), FIRST), refused(text))
  }
  await assert.rejects(
    world.seal.initialise(askingRecovery(3, 2), FIRST),
    refused(/^parameters recovery_shares,recovery_threshold not applicable to seal type shamir$/),
  )
  const twoForOne = asking(2, 2, { unseal: { shares: 2, threshold: 2, pgpKeys: ['abc'] } })
  await assert.rejects(
    world.seal.initialise(twoForOne, FIRST),
    refused(/count mismatch between number of provided PGP/),
  )
  assert.equal(world.seal.status.initialised, false)
  // The largest that there can be.
  const { keys } = await world.seal.initialise(asking(255, 255), FIRST)
  assert.equal(await give(world.seal, keys), true)
})

test('one of two concurrent initializations succeeds', async (t) => {
  const { seal } = await sealWorld(t)
  const both = await Promise.allSettled([seal.initialise(asking(1, 1), FIRST), seal.initialise(asking(1, 1), FIRST)])
  assert.deepEqual(
    both.map(({ status }) => status),
    ['fulfilled', 'rejected'],
  )
  assert.ok(both[0].status === 'fulfilled')
  assert.equal(await give(seal, both[0].value.keys), true)
})

test('an attempt ends on a reset, on a seal, and after an idle time', async (t) => {
  const world = await sealWorld(t)
  const { keys } = await world.seal.initialise(asking(3, 2), FIRST)
  const ending = {
    reset: () => world.seal.resetUnseal(),
    seal: () => void world.seal.seal(),
  }
  for (const [name, end] of Object.entries(ending)) {
    await give(world.seal, keys.slice(0, 1))
    const { nonce } = world.seal.status
    end()
    assert.equal(world.seal.status.progress, 0, name)
    await give(world.seal, keys.slice(0, 1))
    assert.notEqual(world.seal.status.nonce, nonce)
    world.seal.resetUnseal()
  }
  const { seal } = restarted(world, undefined, { idleMs: 1 })
  await give(seal, keys.slice(0, 1))
  await eventually(() => seal.status.progress === 0)
})

test('decodes shares in hex and base64, and reports malformed ones', () => {
  const share = Buffer.alloc(33, 0xa5)
  for (const text of [share.toString('hex'), share.toString('hex').toUpperCase(), share.toString('base64')]) {
    assert.deepEqual(decodeShare(text), share)
    assert.deepEqual(decodeShare(` ${text}\n`), share)
  }
  const cases: [string, RegExp][] = [
    ['', /^'key' must be specified in request body as JSON$/],
    ['!!!', /^'key' must be a valid hex or base64 string$/],
    ['AAAA', /^invalid key: key is shorter than minimum 16 bytes$/],
    [Buffer.alloc(40, 1).toString('base64'), /^invalid key: key is longer than maximum 33 bytes$/],
    [Buffer.alloc(34, 1).toString('hex'), /^invalid key: key is longer than maximum 33 bytes$/],
    ['A'.repeat(100_000), /^invalid key: key is longer than maximum 33 bytes$/],
    ['abcdef', /^invalid key: key is shorter than minimum 16 bytes$/],
    ['abcdé', /^'key' must be/],
  ]
  for (const [text, expected] of cases) assert.throws(() => decodeShare(text), refused(expected), text.slice(0, 50))
})

test('shares have the layout of stock tools: any three shares of a stock server recover one key', async () => {
  const lines = readFileSync('fixtures/openbao/lifecycle-raft.jsonl', 'utf8').split('\n')
  const line = lines.find((each) => each.includes('"init 5/3"')) ?? ''
  const { bodyText } = JSON.parse(line)
  const keys: string[] = JSON.parse(String(bodyText)).keys_base64
  const shares = keys.map((key) => new Uint8Array(decodeShare(key)))
  const made = new Set<string>()
  for (const chosen of [
    [0, 1, 2],
    [2, 3, 4],
    [4, 0, 1],
  ]) {
    made.add(Buffer.from(await combine(chosen.map((at) => shares[at] ?? new Uint8Array()))).toString('hex'))
  }
  assert.equal(made.size, 1)
})

test('the database contains no key and no share in any encoding', async (t) => {
  const world = await sealWorld(t, undefined, { responseMs: 1 })
  const secret = randomBytes(32)
  const known: Buffer[] = [Buffer.from(secret)]
  const { keys } = await world.seal.initialise(asking(1, 1), FIRST, secret)
  assert.deepEqual(secret, Buffer.alloc(32), 'overwritten')
  known.push(...keys)
  await give(world.seal, keys)
  const rekey = new Rekey(world.seal, world.barrier, 'unseal')
  const { nonce } = await rekey.start({
    shares: 3,
    threshold: 2,
    pgpKeys: [],
    backup: false,
    requireVerification: false,
  })
  const result = await rekey.update(Buffer.from(keys[0] ?? []), nonce)
  assert.ok('keys' in result)
  known.push(...result.keys, ...result.keys.map((key) => key.subarray(0, 32)))
  await eventually(() => world.store.get('core/root-key-before') === undefined)
  const rootKey = openRootKey(
    world.store,
    Buffer.from(await combine(result.keys.slice(1).map((key) => new Uint8Array(key)))),
  )
  assert.ok(rootKey)
  known.push(rootKey)
  const files = [world.path, `${world.path}-wal`].filter((path) => existsSync(path)).map((path) => readFileSync(path))
  const bytes = Buffer.concat(files)
  assert.ok(bytes.includes('core/seal-config'), 'it looks at the right files')
  for (const key of known) {
    for (const form of [key, key.toString('hex'), key.toString('base64'), key.toString('base64url')]) {
      assert.equal(bytes.indexOf(form), -1)
    }
  }
})

test('an error of the disk changes nothing', async (t) => {
  const world = await sealWorld(t)
  let isFull = true
  const listeners = new Set<() => void>()
  const store: Store = {
    get: (path) => world.store.get(path),
    pending: (path) => world.store.pending(path),
    list: (prefix, options) => world.store.list(prefix, options),
    paths: (prefix, options) => world.store.paths(prefix, options),
    onFailure: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    async commit(batch) {
      if (!isFull) return world.store.commit(batch)
      await Promise.resolve()
      for (const listener of listeners) listener()
      throw new StoreError('full', 'no space')
    },
  }
  const barrier = new Barrier(store)
  const seal = new Seal(store, barrier, SHAMIR, { responseMs: 1 })
  await assert.rejects(seal.initialise(asking(1, 1), FIRST), /no space/)
  assert.equal(seal.status.initialised, false)
  isFull = false
  const { keys } = await seal.initialise(asking(1, 1), FIRST)
  isFull = true
  // To open it nothing has to be written.
  assert.equal(await give(seal, keys), true)
  const rekey = new Rekey(seal, barrier, 'unseal')
  const { nonce } = await rekey.start({
    shares: 1,
    threshold: 1,
    pgpKeys: [],
    backup: false,
    requireVerification: false,
  })
  const share = () => Buffer.from(keys[0] ?? [])
  await assert.rejects(rekey.update(share(), nonce), /no space/)
  assert.equal(rekey.status.progress, 0)
  await assert.rejects(barrier.rotate(), /no space/)
  assert.equal(await give(restarted(world).seal, keys), true)
  isFull = false
  const result = await rekey.update(share(), nonce)
  assert.ok('keys' in result)
  // The disk is full again before the shares of before have ended: they do not work, and end when there is space.
  isFull = true
  await seal.seal()
  assert.notEqual(store.get('core/root-key-before'), undefined)
  const next = new Barrier(store)
  assert.equal(await give(new Seal(store, next, SHAMIR), result.keys), true, 'it opens, though nothing can be written')
  next.seal()
  await assert.rejects(give(seal, keys), /unseal failed/)
  isFull = false
  await eventually(() => store.get('core/root-key-before') === undefined)
  assert.equal(await give(restarted(world).seal, result.keys), true)
})

function given(shares: readonly Buffer[]): Buffer[] {
  return shares.map((share) => Buffer.from(share))
}

function isOverwritten(shares: readonly Buffer[]): boolean {
  return shares.every((share) => share.every((byte) => byte === 0))
}

test('entered shares are overwritten when the attempt has ended, for any outcome', async (t) => {
  const world = await sealWorld(t)
  const { keys } = await world.seal.initialise(asking(5, 3), FIRST)
  const cancelled = given(keys.slice(0, 2))
  for (const share of cancelled) await world.seal.unseal(share)
  assert.equal(isOverwritten(cancelled), false, 'the attempt still runs')
  world.seal.resetUnseal()
  assert.ok(isOverwritten(cancelled))
  const wrong = [...given(keys.slice(0, 2)), foreignShare(9)]
  await assert.rejects(
    async () => {
      for (const share of wrong) await world.seal.unseal(share)
    },
    refused(/unseal failed/),
  )
  assert.ok(isOverwritten(wrong))
  const right = given(keys.slice(0, 3))
  for (const share of right) await world.seal.unseal(share)
  assert.ok(isOverwritten(right))
})
