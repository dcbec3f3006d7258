/**
 * A caller sends PGP keys that are slow to process: with expensive numbers, with many parts, or many keys at once. They
 * must not block the main thread.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import * as openpgp from 'openpgp'
import { Refusal } from '../../src/platform/errors.ts'
import { PgpWorker, readPgpKey } from '../../src/storage/seal/pgp.ts'
import { CoreWorld } from '../helpers/core-world.ts'

function base64(key: openpgp.PublicKey): string {
  return Buffer.from(key.write()).toString('base64')
}

async function keyWith({ subkeys = 1, userIds = 1 }): Promise<string> {
  const made = await openpgp.generateKey({
    userIDs: Array.from({ length: userIds }, (_, at) => ({ name: `user ${at}` })),
    subkeys: Array.from({ length: subkeys }, () => ({})),
    type: 'curve25519',
    format: 'object',
  })
  return base64(made.publicKey)
}

/** A DSA key of 4096 bits in all of its numbers with eight signatures: verifying them takes the library seconds. */
const SLOW_KEY = readFileSync('fixtures/pgp/dsa-with-slow-numbers.base64', 'utf8').trim()

/** What part of the processor time that the process used meanwhile was this thread's. */
async function shareOfThisThread(work: () => Promise<unknown>): Promise<number> {
  const [mine, all] = [process.threadCpuUsage(), process.cpuUsage()]
  await work()
  const [used, ofAll] = [process.threadCpuUsage(mine), process.cpuUsage(all)]
  return (used.user + used.system) / (ofAll.user + ofAll.system)
}

function refusal(text: RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof Refusal, String(error))
    assert.equal(error.status, 400)
    assert.match(error.message, text)
    return true
  }
}

test('a key with numbers that are slow to compute with is refused before any computation', async () => {
  const share = await shareOfThisThread(() => assert.rejects(readPgpKey(SLOW_KEY), refusal(/DSA/)))
  assert.ok(share < 0.5, `${Math.round(share * 100)} % of the time was this thread's`)
})

test('a large valid key is checked and encrypted to off the main thread', async () => {
  const key = await keyWith({ userIds: 32, subkeys: 8 })
  const share = await shareOfThisThread(async () => {
    const read = await readPgpKey(key)
    for (let round = 0; round < 4; round++) assert.ok((await read.encrypt('a share')).length > 0)
  })
  assert.ok(share < 0.5, `${Math.round(share * 100)} % of the time was this thread's`)
})

test('a key with too many parts is refused', async () => {
  await assert.rejects(readPgpKey(await keyWith({ userIds: 33 })), refusal(/more than 32 user IDs/))
  await assert.rejects(readPgpKey(await keyWith({ subkeys: 33 })), refusal(/more than 32 subkeys/))
})

test('a key check that takes too long is refused, and the next key is checked', async () => {
  const key = await keyWith({ userIds: 32 })
  const hurried = new PgpWorker({ taskTimeoutMs: 1 })
  for (let round = 0; round < 3; round++) {
    await assert.rejects(readPgpKey(key, hurried), refusal(/takes too long/))
  }
  const patient = new PgpWorker({ idleTimeoutMs: 1 })
  for (let round = 0; round < 2; round++) assert.match((await readPgpKey(key, patient)).fingerprint, /^[\da-f]{40}$/)
})

test('a caller that sends many keys is rate-limited, and other callers are not', async (t) => {
  const world = await CoreWorld.open(t)
  const send = async (remote: string, token: string | null) => {
    const answer = await world.ask('PUT', 'sys/generate-root/attempt', { pgp_key: 'AAAA' }, { token, remote })
    return answer.status
  }
  for (let sent = 0; sent < 10; sent++) assert.equal(await send('192.0.2.1', null), 400)
  assert.equal(await send('192.0.2.1', null), 429)
  assert.equal(await send('192.0.2.2', null), 400)
  assert.equal(await send('192.0.2.1', world.rootToken), 400, 'a token with sudo is not counted')
  const split = { secret_shares: 1, secret_threshold: 1, pgp_keys: ['AAAA'] }
  const rekey = await world.ask('PUT', 'sys/rekey/init', split, { token: null, remote: '192.0.2.1' })
  assert.equal(rekey.status, 429)
  const plain = await world.ask('PUT', 'sys/generate-root/attempt', {}, { token: null, remote: '192.0.2.1' })
  assert.equal(plain.status, 200, 'without a key it costs nothing')
})

test('a caller that sends many keys for an initialization is rate-limited, too', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const split = { secret_shares: 1, secret_threshold: 1, pgp_keys: ['AAAA'] }
  const send = async (remote: string) => {
    const { status } = await world.ask('PUT', 'sys/init', split, { token: null, remote })
    return status
  }
  for (let sent = 0; sent < 10; sent++) assert.equal(await send('192.0.2.1'), 400)
  assert.deepEqual([await send('192.0.2.1'), await send('192.0.2.2')], [429, 400])
})

test('a caller that sends slow keys does not prevent a key holder from continuing', async (t) => {
  const world = await CoreWorld.open(t)
  const key = await keyWith({ userIds: 32 })
  const order: string[] = []
  const split = { secret_shares: 4, secret_threshold: 2, pgp_keys: [key, key, key, key] }
  const hostile = world.ask('PUT', 'sys/rekey/init', split).then(() => order.push('hostile'))
  const begun = await world.ask('PUT', 'sys/generate-root/attempt', {})
  const share = world.unsealKey.toString('hex')
  const made = await world.ask('PUT', 'sys/generate-root/update', { key: share, nonce: begun.body['nonce'] })
  order.push('holder')
  assert.equal(made.body['complete'], true)
  await hostile
  assert.deepEqual(order, ['holder', 'hostile'])
})
