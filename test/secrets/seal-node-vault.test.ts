/** A stock client, unchanged, from nothing to a root token made of shares. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import nodeVault from 'node-vault'
import { decodeToken } from '../../src/storage/seal/token-generation.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'

test('node-vault initializes, unseals, seals, rotates and generates a root token', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const port = await listenTo(t, world)
  const vault = nodeVault({ endpoint: `http://127.0.0.1:${port}` })
  assert.deepEqual(await vault.initialized(), { initialized: false })
  const made = await vault.init({ secret_shares: 3, secret_threshold: 2 })
  const keys: string[] = made.keys
  vault.token = made.root_token
  assert.equal((await vault.status()).sealed, true)
  await assert.rejects(vault.tokenLookupSelf(), /Vault is sealed/)
  assert.equal((await vault.unseal({ key: keys[0] })).progress, 1)
  assert.equal((await vault.unseal({ key: keys[2] })).sealed, false)
  assert.equal((await vault.tokenLookupSelf()).data.display_name, 'root')
  await vault.rotate()
  const health = await vault.health()
  assert.deepEqual([health.initialized, health.sealed], [true, false])

  const otp = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
  await assert.rejects(vault.generateRootInit({ otp: 'short' }), /OTP string has incorrect length/)
  const { nonce } = await vault.generateRootInit({ otp })
  await vault.generateRootCancel()
  await assert.rejects(vault.generateRootUpdate({ key: keys[0], nonce }), /no root generation in progress/)
  const again = await vault.generateRootInit({ otp })
  await vault.generateRootUpdate({ key: keys[0], nonce: again.nonce })
  const done = await vault.generateRootUpdate({ key: keys[1], nonce: again.nonce })
  assert.equal(done.complete, true)
  vault.token = decodeToken(done.encoded_token, otp)
  assert.deepEqual((await vault.tokenLookupSelf()).data.policies, ['root'])

  await vault.seal()
  assert.equal((await vault.status()).sealed, true)
  await assert.rejects(vault.unseal({ key: 'not a share' }), /'key' must be a valid hex or base64 string/)
})
