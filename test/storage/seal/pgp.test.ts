/** PGP keys: only the owner reads a message, and an unusable key is refused when it is submitted. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { readPgpKey } from '../../../src/storage/seal/pgp.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { newPgpKey } from '../../helpers/pgp-keys.ts'
import { asking, FIRST, give, NONE, sealWorld } from '../barrier/seal-world.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

test('shares and the root token are encrypted to the PGP keys of their holders', async (t) => {
  const world = await sealWorld(t)
  const [ann, bob, cid] = [await newPgpKey('ann'), await newPgpKey('bob', { rsaBits: 2048 }), await newPgpKey('cid')]
  const made = await world.seal.initialise(
    {
      unseal: { shares: 2, threshold: 2, pgpKeys: [ann.publicKey, bob.publicKey] },
      recovery: NONE,
      rootTokenPgpKey: cid.publicKey,
    },
    FIRST,
  )
  const [one = Buffer.alloc(0), two = Buffer.alloc(0)] = made.keys
  assert.equal(await cid.decrypt(Buffer.from(made.rootToken, 'base64')), FIRST.rootToken)
  await assert.rejects(ann.decrypt(two))
  const shares = [await ann.decrypt(one), await bob.decrypt(two)].map((hex) => Buffer.from(hex, 'hex'))
  assert.equal(await give(world.seal, shares), true)
})

test('refuses an expired key, a key that cannot encrypt, and malformed keys with 400', async (t) => {
  const armored = '-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----'
  const good = await newPgpKey('good')
  const recording = readFileSync('fixtures/openbao/generate-root-pgp-no-encryption-key-raft.jsonl', 'utf8')
  const line = recording.split('\n').find((each) => each.includes('a key that cannot encrypt'))
  const recorded: string = JSON.parse(JSON.parse(line ?? '').reqBody).pgp_key
  const cases: [string, string, RegExp][] = [
    ['sign only', (await newPgpKey('s', { kind: 'signing only' })).publicKey, /cannot encrypt/],
    ['the recorded one without encryption', recorded, /cannot encrypt/],
    ['expired', (await newPgpKey('e', { kind: 'expired' })).publicKey, /cannot encrypt: .*expired/],
    ['revoked', (await newPgpKey('r', { kind: 'revoked' })).publicKey, /cannot encrypt: .*revoked/],
    ['private', good.privateKey, /is a private key/],
    ['not base64', '!!!', /error decoding given PGP key: illegal base64 data/],
    ['armored', armored, /error decoding given PGP key: illegal base64 data/],
    ['base64 of armored', Buffer.from(armored).toString('base64'), /error parsing given PGP key/],
    ['empty', '', /illegal base64/],
    ['nothing that is known', Buffer.alloc(100, 0x61).toString('base64'), /error parsing given PGP key/],
    ['cut', good.publicKey.slice(0, 80), /PGP key/],
    ['too large', 'A'.repeat(300_000), /longer than/],
  ]
  const world = await sealWorld(t)
  const many = { shares: 100, threshold: 2, pgpKeys: Array.from({ length: 100 }, () => 'A'.repeat(60_000)) }
  await assert.rejects(
    world.seal.initialise(asking(2, 2, { unseal: many }), FIRST),
    /the keys together are longer than/,
  )
  for (const [name, key, text] of cases) {
    await assert.rejects(
      readPgpKey(key),
      (error: unknown) => {
        assert.ok(error instanceof Refusal, `${name}: ${String(error)}`)
        assert.equal(error.status, 400)
        assert.match(error.message, text, name)
        assert.ok(error.message.length < 300)
        return true
      },
      name,
    )
    const request = asking(1, 1, { rootTokenPgpKey: key || '!' })
    await assert.rejects(world.seal.initialise(request, FIRST), /^Refusal: error parsing PGP key/)
    assert.equal(world.seal.status.initialised, false)
  }
})

const gpg = spawnSync('gpg', ['--version']).status === 0

test('gpg decrypts a message to its key', { skip: gpg ? false : 'there is no gpg here' }, async (t) => {
  const home = temporaryDirectory(t)
  const run = (args: readonly string[], input?: Buffer) => {
    const done = spawnSync(
      'gpg',
      ['--homedir', home, '--batch', '--pinentry-mode', 'loopback', '--passphrase', '', ...args],
      {
        input,
      },
    )
    assert.equal(done.status, 0, done.stderr.toString())
    return done.stdout
  }
  t.after(() => spawnSync('gpgconf', ['--homedir', home, '--kill', 'all']))
  for (const kind of ['rsa2048', 'future-default']) {
    const id = `${kind}@example.org`
    run(['--quick-generate-key', id, kind, ...(kind === 'rsa2048' ? ['encrypt'] : [])].slice(0, 4))
    const key = await readPgpKey(run(['--export', id]).toString('base64'))
    assert.equal(run(['--decrypt'], await key.encrypt('a share')).toString(), 'a share', kind)
  }
})
