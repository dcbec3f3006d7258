/**
 * Exchanges that a stock server was seen to have: making keys, opening, sealing, other shares, root tokens from shares.
 * Ours are the same, but for the table of differences, each with its reason.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeToken } from '../../src/storage/seal/token-generation.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { type Difference, type Recorded, recordedExchanges, replay, Substitutions } from '../helpers/openbao-replay.ts'
import { newPgpKey } from '../helpers/pgp-keys.ts'

/** Members that belong to one cluster. */
const MADE = new Set([
  'nonce',
  'keys',
  'keys_base64',
  'root_token',
  'otp',
  'token',
  'encoded_token',
  'encoded_root_token',
  'pgp_fingerprint',
  'cluster_name',
  'cluster_id',
  'request_id',
  'version',
  'storage_type',
  'install_time',
])

const HINTS = 'says the same whatever is wrong with the shares: which one it is would help whoever guesses'
const PLAIN = 'says what is wrong in plain words, without the texts of a library'
const text = (exchange: string | RegExp, why: string, ours: RegExp): Difference => ({
  exchange,
  what: 'errors[0]',
  why,
  ours,
})

const MORE: Difference = { exchange: /./, what: 'build_date', why: 'told besides', ours: /^""$/ }
const DIFFERENCES: readonly Difference[] = [
  { exchange: /./, what: 'outpost_version', why: 'version is that of the API' },
  MORE,
  text('init bad {"secret_shares":"x"}', PLAIN, /"secret_shares\\": expected a whole number/),
  text('init bad JSON', PLAIN, /^"failed to decode JSON input: /),
  text(/^(wrong 3 \(threshold\)|dup x third)$/, HINTS, /^"unseal failed, invalid key: the key shares/),
  text(/^update (idle|after cancel)$/, HINTS, /^"no root generation in progress: .*; start again"$/),
  text('wrong share 3', HINTS, /^"root generation aborted: the key shares/),
  text('start bad otp', 'also says which length', /^"OTP string has incorrect length: .* 26 /),
  text('start again', 'there is one namespace', /^"root generation already in progress"$/),
  text('start bad pgp', PLAIN, /^"error parsing PGP key: error decoding given PGP key: illegal/),
  text('start bad pgp base64', PLAIN, /^"error parsing PGP key: error decoding given PGP key: illegal/),
  text('start pgp armored', PLAIN, /^"error parsing PGP key: error decoding given PGP key: illegal/),
  text('start pgp base64 of armored', PLAIN, /^"error parsing PGP key: error parsing given PGP key/),
  {
    exchange: 'sealed GET sys/replication/dr/status',
    what: 'status',
    why: 'a secondary is asked for it while it is sealed, too',
    ours: /^200 .*"mode":"disabled"/,
  },
  {
    exchange: 'bad',
    what: 'status',
    why: 'the mistake is the caller’s: 400, not 500',
    ours: /^400 .*"invalid rekey seal configuration: threshold cannot be larger than shares"/,
  },
]

const OURS =
  /^\/v1\/sys\/(init|seal-status|unseal|seal|generate-root|generate-root-token|rekey|rekey-recovery-key|rotate|key-status|decode-token)(\/|$)/

function isOurs({ name, path }: Recorded): boolean {
  return OURS.test(path) || name.startsWith('sealed ')
}

/** A share of the recording that has the x of the first one and other bytes: so must ours. */
function withXOfFirst(keys: readonly string[]): string {
  const first = Buffer.from(keys[0] ?? '', 'base64')
  return Buffer.concat([Buffer.alloc(32, 9), first.subarray(32)]).toString('base64')
}

/** The nonce of the attempt, which this server requires where the recorded one accepts any caller. */
function withNonce(exchange: Recorded, at: number, all: readonly Recorded[]): Recorded {
  if (exchange.method !== 'DELETE') return exchange
  const begun = all.slice(0, at).findLast(({ method, path, status }) => {
    return method === 'PUT' && path === exchange.path && status === 200
  })
  const { nonce } = JSON.parse(begun?.bodyText ?? '{}')
  return { ...exchange, path: `${exchange.path}?nonce=${String(nonce ?? '')}` }
}

/** Fresh PGP keys in the place of recorded ones, which would expire one day. */
async function replacePgpKeys(known: Substitutions, exchanges: readonly Recorded[]) {
  const owners = new Map<string, Awaited<ReturnType<typeof newPgpKey>>>()
  for (const { bodyText = '{}', name, reqBody, status } of exchanges) {
    if (!name.startsWith('start pgp') || status !== 200 || name === 'start pgp and otp') continue
    const owner = await newPgpKey(name)
    known.learn(JSON.parse(reqBody ?? '{}').pgp_key, owner.publicKey)
    known.learn(JSON.parse(bodyText).pgp_fingerprint, owner.fingerprint)
    owners.set(name.replace('start pgp ', ''), owner)
  }
  return owners
}

test('requests from initialization to a seal with new shares are answered as recorded', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const known = new Substitutions()
  // Once the core is open, the recording of its life goes on with secrets; the root tokens come next.
  const life = recordedExchanges('lifecycle-raft').filter(isOurs)
  const roots = recordedExchanges('generate-root-raft').filter(isOurs).map(withNonce)
  const rekeys = recordedExchanges('rekey-seal-raft').filter(isOurs)
  const owners = await replacePgpKeys(known, roots)
  const all = [...life, ...roots, ...rekeys]
  await replay(all, {
    port: await listenTo(t, world),
    differences: DIFFERENCES,
    made: MADE,
    known,
    before({ name }) {
      if (name !== 'dup x') return
      const ours = known.of('Kncm0pyyUJOkb7dFlLKahPx5bj246VIPSTsYvOFqu00g')
      known.learn('CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkg', withXOfFirst([ours]))
    },
  })
  assert.ok(all.length > 110, `${all.length} were played`)

  // What came out of it works: by password and for owners of PGP keys.
  const encoded = known.of('QlwiHyYXMWF6EDsoHAABeXcMJR9AAiIifR8')
  const made = [decodeToken(encoded, known.of('1rzIJvxQHQlrO9F4B8DVspUf3r'))]
  for (const [name, owner] of owners) {
    const done = roots.find((exchange) => exchange.name === `pgp ${name} update 3`)
    const { encoded_token: theirs } = JSON.parse(done?.bodyText ?? '{}')
    made.push(await owner.decrypt(Buffer.from(known.of(theirs), 'base64')))
  }
  assert.equal(made.length, 1 + owners.size)
  for (const token of made) {
    const { body, status } = await world.ask('GET', 'auth/token/lookup-self', undefined, { token })
    assert.deepEqual([status, body.data['policies']], [200, ['root']])
  }
})

test('the paths that require a token are answered as recorded on a server of two shares', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const init = await world.ask('PUT', 'sys/init', { secret_shares: 2, secret_threshold: 2 }, { token: null })
  const keys = init.body['keys_base64']
  assert.ok(Array.isArray(keys))
  for (const key of keys) await world.ask('PUT', 'sys/unseal', { key }, { token: null })
  const known = new Substitutions()
  const exchanges = recordedExchanges('generate-root-default-config').filter(({ name }) =>
    /^(token path|rotate root)/.test(name),
  )
  const token = exchanges.find(({ name }) => name === 'token path')?.reqHeaders?.['X-Vault-Token'] ?? ''
  known.learn(token, String(init.body['root_token']))
  const used = exchanges.flatMap(({ reqBody }) => /"key":"([^"]+)"/.exec(reqBody ?? '')?.[1] ?? [])
  used.forEach((theirs, at) => known.learn(theirs, keys[at]))
  assert.equal(exchanges.length, 6)
  await replay(exchanges, { port: await listenTo(t, world), differences: [], made: MADE, known })
})

test('a PGP key that cannot encrypt is refused at the start, where the recorded server loses a root token', async (t) => {
  const world = await CoreWorld.open(t)
  const [start] = recordedExchanges('generate-root-pgp-no-encryption-key-raft').filter(({ name }) =>
    name.startsWith('start'),
  )
  const { body, status } = await world.ask('PUT', 'sys/generate-root/attempt', start?.reqBody ?? '', { token: null })
  assert.equal(status, 400)
  assert.match(
    body.errors[0] ?? '',
    /^error parsing PGP key: the key 980eb358a35b72b4a1455d9c774754ad453d04f2 cannot encrypt/,
  )
  const attempt = await world.ask('GET', 'sys/generate-root/attempt', undefined, { token: null })
  assert.equal(attempt.body['started'], false)
})
