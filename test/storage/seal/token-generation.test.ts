/** Generating privileged tokens with key shares. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  decodeToken,
  encodeToken,
  TokenGeneration,
  type TokenFactory,
} from '../../../src/storage/seal/token-generation.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { newPgpKey } from '../../helpers/pgp-keys.ts'
import {
  asking,
  askingRecovery,
  FIRST,
  foreignShare,
  give,
  machineKey,
  type SealWorld,
  sealWorld,
} from '../barrier/seal-world.ts'

const OTP = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'

function source(): TokenFactory & { readonly made: string[]; readonly valid: string[] } {
  const [made, valid]: string[][] = [[], []]
  return {
    tokenLength: 26,
    made: made ?? [],
    valid: valid ?? [],
    create() {
      const token = `s.token-number-${made?.length ?? 0}`.padEnd(26, 'x')
      made?.push(token)
      return { token, commit: async () => valid?.push(token) }
    },
  }
}

async function opened(world: SealWorld): Promise<readonly Buffer[]> {
  const { keys } = await world.seal.initialise(asking(5, 3), FIRST)
  await give(world.seal, keys.slice(0, 3))
  return keys
}

async function all(generation: TokenGeneration, shares: readonly Buffer[], nonce: string) {
  let last = generation.status
  for (const share of shares) last = await generation.update(Buffer.from(share), nonce)
  return last
}

test('the encoding of a token is that of stock tools', () => {
  const vectors = [
    ['AnQ+CEkZCyEcUit5fnoiEBI8I1MYFSlXBE4', 'qZkG8AAgu4l5KOdypXG1TQS8lz', 's.UOqXJFifGL55FibddbLDzoh4'],
    ['Bxg9JQQqOCNKBRICNwMIRzo2J3cWCBRi', '3JhHkONiyiaNYj14nnD9xZQS', '4RUmoevJ3lsLni9sTXcNnRE1'],
    ['QlwiHyYXMWF6EDsoHAABeXcMJR9AAiIifR8', '1rzIJvxQHQlrO9F4B8DVspUf3r', 's.XVlaI02AWZS9GM54aI3rwDNm'],
  ] as const
  for (const [encoded, otp, token] of vectors) {
    assert.equal(encodeToken(token, otp), encoded)
    assert.equal(decodeToken(encoded, otp), token)
  }
  for (const [encoded, otp] of [
    ['', ''],
    ['AAAA', 'x'],
    ['!', 'abc'],
  ] as const) {
    assert.throws(() => decodeToken(encoded, otp), Refusal)
  }
})

test('generates a token with a generated password, which is returned once, and with the caller’s password', async (t) => {
  const world = await sealWorld(t)
  const keys = await opened(world)
  const tokens = source()
  const generation = new TokenGeneration(world.seal, world.barrier, tokens)
  const idle = {
    nonce: '',
    started: false,
    progress: 0,
    required: 3,
    complete: false,
    encodedToken: '',
    fingerprint: '',
    otp: '',
    otpLength: 26,
  }
  assert.deepEqual(generation.status, idle)
  await assert.rejects(
    generation.update(Buffer.from(keys[0] ?? []), 'x'),
    /^Refusal: no root generation in progress: .*; start again$/,
  )
  await assert.rejects(generation.start({ otp: 'short', pgpKey: '' }), /^Refusal: OTP string has incorrect length/)
  const { nonce, otp } = await generation.start({ otp: '', pgpKey: '' })
  assert.match(otp, /^[0-9A-Za-z]{26}$/)
  assert.deepEqual(generation.status, { ...idle, nonce, started: true })
  await assert.rejects(generation.start({ otp: '', pgpKey: '' }), /^Refusal: root generation already in progress/)
  await assert.rejects(
    generation.update(Buffer.from(keys[0] ?? []), 'bad'),
    /incorrect nonce supplied; nonce for this root/,
  )
  const done = await all(generation, keys.slice(0, 3), nonce)
  const { encodedToken, ...rest } = done
  assert.deepEqual(rest, {
    nonce,
    started: true,
    progress: 3,
    required: 3,
    complete: true,
    fingerprint: '',
    otp: '',
    otpLength: 26,
  })
  assert.deepEqual([decodeToken(encodedToken, otp)], tokens.valid)
  assert.deepEqual(generation.status, idle)

  const own = await generation.start({ otp: OTP, pgpKey: 'not looked at' })
  assert.equal(own.otp, '')
  const { encodedToken: second } = await all(generation, keys.slice(2), own.nonce)
  assert.equal(decodeToken(second, OTP), tokens.valid[1])
})

test('encrypts a token to a PGP key, and refuses to start with an unusable key', async (t) => {
  const world = await sealWorld(t)
  const keys = await opened(world)
  const tokens = source()
  const generation = new TokenGeneration(world.seal, world.barrier, tokens)
  const useless = await newPgpKey('sign', { kind: 'signing only' })
  await assert.rejects(generation.start({ otp: '', pgpKey: useless.publicKey }), /cannot encrypt/)
  assert.equal(generation.status.started, false)
  const owner = await newPgpKey('owner')
  const { nonce, fingerprint, otp } = await generation.start({ otp: '', pgpKey: owner.publicKey })
  assert.deepEqual([fingerprint, otp], [owner.fingerprint, ''])
  const done = await all(generation, keys.slice(0, 3), nonce)
  assert.equal(done.fingerprint, owner.fingerprint)
  assert.equal(await owner.decrypt(Buffer.from(done.encodedToken, 'base64')), tokens.valid[0])
})

test('wrong shares create no token, and the attempt restarts with the same nonce', async (t) => {
  const world = await sealWorld(t)
  const keys = await opened(world)
  const tokens = source()
  const generation = new TokenGeneration(world.seal, world.barrier, tokens)
  const { nonce } = await generation.start({ otp: OTP, pgpKey: '' })
  await assert.rejects(
    all(generation, [foreignShare(7), ...keys.slice(0, 2)], nonce),
    /^Refusal: root generation aborted/,
  )
  assert.deepEqual([generation.status.nonce, generation.status.progress, tokens.made], [nonce, 0, []])
  await generation.update(Buffer.from(keys[0] ?? []), nonce)
  await assert.rejects(generation.update(Buffer.from(keys[0] ?? []), nonce), /given key has already been provided/)
  generation.end()
  await assert.rejects(generation.update(Buffer.from(keys[1] ?? []), nonce), /no root generation in progress/)
  // A seal ends the attempt.
  await generation.start({ otp: OTP, pgpKey: '' })
  await world.seal.seal()
  await assert.rejects(generation.start({ otp: OTP, pgpKey: '' }), /sealed|in progress/)
  await give(world.seal, keys.slice(0, 3))
  assert.equal(generation.status.started, false)
})

test('an attempt that is canceled before its token is encoded leaves no valid token', async (t) => {
  const world = await sealWorld(t)
  const keys = await opened(world)
  const tokens = source()
  const canceling = {
    ...tokens,
    create() {
      generation.end()
      return tokens.create()
    },
  }
  const generation: TokenGeneration = new TokenGeneration(world.seal, world.barrier, canceling)
  const { nonce } = await generation.start({ otp: OTP, pgpKey: '' })
  await assert.rejects(all(generation, keys.slice(0, 3), nonce), /^Refusal: root generation aborted: it was canceled$/)
  assert.deepEqual([tokens.made.length, tokens.valid, generation.status.started], [1, [], false])
})

test('recovery shares generate a token with a static seal', async (t) => {
  const world = await sealWorld(t, machineKey('key-1'))
  const { recoveryKeys } = await world.seal.initialise(askingRecovery(2, 2), FIRST)
  await world.seal.autoUnseal()
  const tokens = source()
  const generation = new TokenGeneration(world.seal, world.barrier, tokens)
  const { nonce } = await generation.start({ otp: OTP, pgpKey: '' })
  const { encodedToken } = await all(generation, recoveryKeys, nonce)
  assert.equal(decodeToken(encodedToken, OTP), tokens.valid[0])
})
