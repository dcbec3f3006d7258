/**
 * Exchanges that a stock server was seen to have: making keys, opening, sealing, other shares, root tokens from shares.
 * Ours are the same, but for the table of differences, each with its reason.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeToken } from '../../src/barrier/seal-generation.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { newPgpKey } from '../helpers/pgp-keys.ts'
import { type Difference, type Exchange, Player, recorded } from './recorded.ts'

const HINTS = 'says the same whatever is wrong with the shares: which one it is would help whoever guesses'
const PLAIN = 'says what is wrong in plain words, without the texts of a library'
const DIFFERENCES: Readonly<Record<string, Difference>> = {
  'init bad {"secret_shares":"x"}': { why: PLAIN, status: 400, error: /"secret_shares": expected a whole number/ },
  'init bad JSON': { why: PLAIN, status: 400, error: /^failed to decode JSON input: / },
  'wrong 3 (threshold)': { why: HINTS, status: 400, error: /^unseal failed, invalid key: the key shares/ },
  'dup x third': { why: HINTS, status: 400, error: /^unseal failed, invalid key: the key shares/ },
  'wrong share 3': { why: HINTS, status: 400, error: /^root generation aborted: the key shares/ },
  'start bad otp': { why: 'also says which length', status: 400, error: /^OTP string has incorrect length: .* 26 / },
  'start again': { why: 'there is one namespace', status: 400, error: /^root generation already in progress$/ },
  'start bad pgp': { why: PLAIN, status: 400, error: /^error parsing PGP key: error decoding given PGP key: illegal/ },
  'start bad pgp base64': {
    why: PLAIN,
    status: 400,
    error: /^error parsing PGP key: error decoding given PGP key: illegal/,
  },
  'start pgp armored': {
    why: PLAIN,
    status: 400,
    error: /^error parsing PGP key: error decoding given PGP key: illegal/,
  },
  'start pgp base64 of armored': {
    why: PLAIN,
    status: 400,
    error: /^error parsing PGP key: error parsing given PGP key/,
  },
  bad: {
    why: 'the mistake is the caller’s: 400, not 500',
    status: 400,
    error: /^invalid rekey seal configuration: threshold cannot be larger than shares$/,
  },
}

const OURS =
  /^\/v1\/sys\/(init|seal-status|unseal|seal|generate-root|generate-root-token|rekey|rekey-recovery-key|rotate|key-status|decode-token)(\/|$)/

function isOurs({ name, path }: Exchange): boolean {
  return OURS.test(path) || name.startsWith('sealed ')
}

/** A share of the recording that has the x of the first one and other bytes: so must ours. */
function withXOfFirst(keys: readonly string[]): string {
  const first = Buffer.from(keys[0] ?? '', 'base64')
  return Buffer.concat([Buffer.alloc(32, 9), first.subarray(32)]).toString('base64')
}

/** Fresh PGP keys in the place of recorded ones, which would expire one day. */
async function replacePgpKeys(player: Player, exchanges: readonly Exchange[]) {
  const owners = new Map<string, Awaited<ReturnType<typeof newPgpKey>>>()
  for (const { bodyText, name, reqBody, status } of exchanges) {
    if (!name.startsWith('start pgp') || status !== 200 || name === 'start pgp and otp') continue
    const owner = await newPgpKey(name)
    player.replace(JSON.parse(reqBody ?? '{}').pgp_key, owner.publicKey)
    player.replace(JSON.parse(bodyText).pgp_fingerprint, owner.fingerprint)
    owners.set(name.replace('start pgp ', ''), owner)
  }
  return owners
}

test('from making the keys to sealing with other shares, everything answers as recorded', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const player = new Player(world)
  const wrong: string[] = []
  // Once the core is open, the recording of its life goes on with secrets; the root tokens come next.
  const life = recorded('lifecycle-raft').filter(isOurs)
  const roots = recorded('generate-root-raft').filter(isOurs)
  const rekeys = recorded('rekey-seal-raft').filter(isOurs)
  const owners = await replacePgpKeys(player, roots)
  for (const exchange of [...life, ...roots, ...rekeys]) {
    if (exchange.name === 'dup x') {
      const ours = player.textFor('Kncm0pyyUJOkb7dFlLKahPx5bj246VIPSTsYvOFqu00g')
      player.replace('CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkg', withXOfFirst([ours]))
    }
    wrong.push(...(await player.play(exchange, DIFFERENCES[exchange.name])))
  }
  assert.deepEqual(wrong, [])
  assert.ok(player.played.length > 110, `${player.played.length} were played`)
  const unused = Object.keys(DIFFERENCES).filter((name) => !player.played.includes(name))
  assert.deepEqual(unused, [], 'a difference that is none')

  // What came out of it works: by password and for owners of PGP keys.
  const encoded = player.textFor('QlwiHyYXMWF6EDsoHAABeXcMJR9AAiIifR8')
  const made = [decodeToken(encoded, player.textFor('1rzIJvxQHQlrO9F4B8DVspUf3r'))]
  for (const [name, owner] of owners) {
    const done = roots.find((exchange) => exchange.name === `pgp ${name} update 3`)
    const { encoded_token: theirs } = JSON.parse(done?.bodyText ?? '{}')
    made.push(await owner.decrypt(Buffer.from(player.textFor(theirs), 'base64')))
  }
  assert.equal(made.length, 1 + owners.size)
  for (const token of made) {
    const { body, status } = await world.ask('GET', 'auth/token/lookup-self', undefined, { token })
    assert.deepEqual([status, body.data['policies']], [200, ['root']])
  }
})

test('the family that takes a token, as recorded on a server of two shares', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const init = await world.ask('PUT', 'sys/init', { secret_shares: 2, secret_threshold: 2 }, { token: null })
  const keys = init.body['keys_base64']
  assert.ok(Array.isArray(keys))
  for (const key of keys) await world.ask('PUT', 'sys/unseal', { key }, { token: null })
  const player = new Player(world)
  const exchanges = recorded('generate-root-default-config').filter(({ name }) =>
    /^(token path|rotate root)/.test(name),
  )
  const token = exchanges.find(({ name }) => name === 'token path')?.reqHeaders['X-Vault-Token'] ?? ''
  player.replace(token, String(init.body['root_token']))
  const used = exchanges.flatMap(({ reqBody }) => /"key":"([^"]+)"/.exec(reqBody ?? '')?.[1] ?? [])
  used.forEach((theirs, at) => player.replace(theirs, keys[at]))
  const wrong: string[] = []
  for (const exchange of exchanges) wrong.push(...(await player.play(exchange)))
  assert.deepEqual(wrong, [])
  assert.equal(player.played.length, 6)
})

test('a PGP key that cannot encrypt is refused at the start, where the recorded server loses a root token', async (t) => {
  const world = await CoreWorld.open(t)
  const [start] = recorded('generate-root-pgp-no-encryption-key-raft').filter(({ name }) => name.startsWith('start'))
  const { body, status } = await world.ask('PUT', 'sys/generate-root/attempt', start?.reqBody ?? '', { token: null })
  assert.equal(status, 400)
  assert.match(
    body.errors[0] ?? '',
    /^error parsing PGP key: the key 980eb358a35b72b4a1455d9c774754ad453d04f2 cannot encrypt/,
  )
  const attempt = await world.ask('GET', 'sys/generate-root/attempt', undefined, { token: null })
  assert.equal(attempt.body['started'], false)
})
