/** The endpoints of the seal that no recording has: verification, backups, recovery keys, rotation, and who may ask. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isRotationDue } from '../../../../src/secrets/system/seal/system-seal-rotate.ts'
import { type AskOptions, CoreWorld } from '../../../helpers/core-world.ts'
import { Random } from '../../../helpers/frames.ts'
import { newPgpKey } from '../../../helpers/pgp-keys.ts'

const NO_TOKEN = { token: null }

function texts(value: unknown): string[] {
  assert.ok(Array.isArray(value))
  return value.map(String)
}

async function initialised(world: CoreWorld, body: object): Promise<{ keys: string[]; recovery: string[] }> {
  const { body: made, status } = await world.ask('PUT', 'sys/init', body, NO_TOKEN)
  assert.equal(status, 200, JSON.stringify(made))
  world.rootToken = String(made['root_token'])
  return { keys: texts(made['keys_base64']), recovery: texts(made['recovery_keys_base64'] ?? []) }
}

const FAMILIES = {
  'sys/rekey': { options: NO_TOKEN, isEnveloped: false },
  'sys/rotate/root': { options: {}, isEnveloped: true },
}

for (const [prefix, { isEnveloped, options }] of Object.entries(FAMILIES)) {
  test(`${prefix}: new shares are encrypted to PGP keys, verified, and have a backup`, async (t) => {
    const world = await CoreWorld.open(t, { raw: true })
    const { keys } = await initialised(world, { secret_shares: 2, secret_threshold: 2 })
    for (const key of keys) await world.ask('PUT', 'sys/unseal', { key }, NO_TOKEN)
    const ask = async (method: string, path: string, body?: object) => {
      const answer = await world.ask(method, `${prefix}/${path}`, body, options)
      assert.equal(answer.status, 200, answer.text)
      return isEnveloped ? answer.body.data : answer.body
    }
    const owner = await newPgpKey('owner')
    const asked = { secret_shares: 2, secret_threshold: 2, pgp_keys: [owner.publicKey, owner.publicKey] }
    const started = await ask('PUT', 'init', { ...asked, backup: true, require_verification: true })
    assert.deepEqual(
      { ...started, nonce: '' },
      {
        nonce: '',
        started: true,
        t: 2,
        n: 2,
        progress: 0,
        required: 2,
        pgp_fingerprints: [owner.fingerprint, owner.fingerprint],
        backup: true,
        verification_required: true,
      },
    )
    const { nonce } = started
    assert.equal((await ask('PUT', 'update', { key: keys[0], nonce }))['progress'], 1)
    const done = await ask('PUT', 'update', { key: keys[1], nonce })
    assert.deepEqual([done['complete'], done['verification_required'], done['nonce']], [true, true, nonce])
    const { verification_nonce } = done
    const status = await ask('GET', 'verify')
    assert.deepEqual(status, { nonce: verification_nonce, started: true, t: 2, n: 2, progress: 0 })
    const messages = texts(done['keys_base64']).map((text) => Buffer.from(text, 'base64'))
    const shares = await Promise.all(messages.map((message) => owner.decrypt(message)))
    assert.equal((await ask('PUT', 'verify', { key: shares[0], nonce: verification_nonce }))['progress'], 1)
    const { nonce: again } = await ask('DELETE', 'verify', { nonce: verification_nonce })
    assert.notEqual(again, verification_nonce)
    await ask('PUT', 'verify', { key: shares[0], nonce: again })
    assert.deepEqual(await ask('PUT', 'verify', { key: shares[1], nonce: again }), { nonce: again, complete: true })

    const backup = await world.ask('GET', `${prefix}/backup`)
    assert.deepEqual(backup.body.data, {
      nonce,
      keys: { [owner.fingerprint]: done['keys'] },
      keys_base64: { [owner.fingerprint]: done['keys_base64'] },
    })
    assert.deepEqual(backup.body['keys'], backup.body.data['keys'], 'also beside the envelope')
    assert.equal((await world.ask('GET', `${prefix}/backup`, undefined, NO_TOKEN)).status, 403)
    assert.equal((await world.ask('DELETE', `${prefix}/backup`)).status, 204)
    assert.deepEqual((await world.ask('GET', `${prefix}/backup`)).body.errors, ['no backed-up keys found'])

    await world.ask('PUT', 'sys/seal')
    for (const key of shares) await world.ask('PUT', 'sys/unseal', { key }, NO_TOKEN)
    assert.equal((await world.ask('GET', 'auth/token/lookup-self')).status, 200)
  })
}

test('both path families control the same attempt, and canceling it requires its nonce or sudo', async (t) => {
  const world = await CoreWorld.open(t)
  const asked = { secret_shares: 1, secret_threshold: 1 }
  for (const [begin, see, tokens] of [
    ['sys/rekey/init', 'sys/rotate/root/init', [null, undefined]],
    ['sys/rotate/root/init', 'sys/rekey/init', [undefined, null]],
    ['sys/generate-root/attempt', 'sys/generate-root-token/attempt', [null, undefined]],
    ['sys/generate-root-token/attempt', 'sys/generate-root/attempt', [undefined, null]],
  ] as const) {
    const [beginner, other] = tokens.map((token) => (token === null ? NO_TOKEN : {}))
    const started = await world.ask('PUT', begin, begin.includes('root/attempt') ? {} : asked, beginner)
    assert.equal(started.status, 200, started.text)
    const seen = await world.ask('GET', see, undefined, other)
    const stateOf = ({ body }: typeof seen) => body.data ?? body
    assert.deepEqual([stateOf(seen)['started'], stateOf(seen)['nonce']], [true, stateOf(started)['nonce']])
    const nonce = stateOf(started)['nonce']
    if (other === NO_TOKEN) assert.equal((await world.ask('DELETE', see, undefined, other)).status, 400)
    const body = other === NO_TOKEN ? { nonce } : undefined
    assert.equal((await world.ask('DELETE', see, body, other)).status, 204)
    assert.equal(stateOf(await world.ask('GET', begin, undefined, beginner))['started'], false)
  }
})

test('a static seal has recovery shares at init, which authorize new recovery shares and root tokens', async (t) => {
  const world = await CoreWorld.open(t, {
    raw: true,
    seal: { type: 'static', disabled: false, current: { id: 'k', source: '7'.repeat(64) } },
  })
  const { keys, recovery } = await initialised(world, { recovery_shares: 2, recovery_threshold: 2 })
  assert.deepEqual([keys.length, recovery.length], [0, 2])
  assert.equal((await world.ask('GET', 'auth/token/lookup-self')).status, 200, 'open at once')
  const status = await world.ask('GET', 'sys/seal-status', undefined, NO_TOKEN)
  const { recovery_seal, recovery_seal_type, sealed, t: threshold, type } = status.body
  assert.deepEqual([type, sealed, recovery_seal, recovery_seal_type, threshold], ['static', false, true, 'shamir', 2])

  const start = await world.ask(
    'PUT',
    'sys/rekey-recovery-key/init',
    { secret_shares: 1, secret_threshold: 1 },
    NO_TOKEN,
  )
  const { nonce } = start.body
  await world.ask('PUT', 'sys/rekey-recovery-key/update', { key: recovery[0], nonce }, NO_TOKEN)
  const done = await world.ask('PUT', 'sys/rekey-recovery-key/update', { key: recovery[1], nonce }, NO_TOKEN)
  assert.equal(done.body['complete'], true)
  const [key] = texts(done.body['keys'])
  const attempt = await world.ask('PUT', 'sys/generate-root/attempt', {}, NO_TOKEN)
  const made = await world.ask('PUT', 'sys/generate-root/update', { key, nonce: attempt.body['nonce'] }, NO_TOKEN)
  const { otp } = attempt.body
  const decoded = await world.ask(
    'PUT',
    'sys/decode-token',
    { encoded_token: made.body['encoded_token'], otp },
    NO_TOKEN,
  )
  const token = String(decoded.body.data['token'])
  assert.deepEqual((await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).body.data['policies'], [
    'root',
  ])
})

test('the log has the caller of each seal operation and no share or token', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const { keys } = await initialised(world, { secret_shares: 1, secret_threshold: 1 })
  const said = () => world.lines.map(({ message }) => message)
  const ask = async (method: string, path: string, body?: object, options: AskOptions = NO_TOKEN) => {
    return (await world.ask(method, path, body, { remote: '192.0.2.7', ...options })).body
  }
  const [key = ''] = keys
  await ask('PUT', 'sys/unseal', { key })
  const first = await ask('PUT', 'sys/generate-root/attempt', {})
  const made = await ask('PUT', 'sys/generate-root/update', { key, nonce: first['nonce'] })
  const second = await ask('PUT', 'sys/generate-root/attempt', {})
  await ask('DELETE', `sys/generate-root/attempt?nonce=${String(second['nonce'])}`)
  await ask('DELETE', 'sys/generate-root/attempt')
  const { nonce } = await ask('PUT', 'sys/rekey/init', { secret_shares: 1, secret_threshold: 1 })
  const next = await ask('PUT', 'sys/rekey/update', { key, nonce })
  await ask('PUT', 'sys/rotate', undefined, {})
  await ask('PUT', 'sys/seal', undefined, {})
  assert.deepEqual(
    said().filter((message) => message !== 'secrets core active'),
    [
      'secrets core initialized',
      'secrets core unsealed',
      'root token generation started',
      'root token generated',
      'root token generation started',
      'root token generation canceled',
      'rekey started',
      'rekey completed',
      'encryption key rotated',
      'secrets core sealed',
    ],
  )
  const log = JSON.stringify(world.lines)
  assert.match(log, /192\.0\.2\.7/)
  const accessorOf = (message: string) => world.lines.find((line) => line.message === message)?.fields['accessor']
  assert.equal(accessorOf('secrets core unsealed'), '', 'no token was sent')
  assert.ok(String(accessorOf('secrets core sealed')).length > 10, 'the accessor of the root token')
  for (const secret of [
    key,
    ...texts(next['keys']),
    ...texts(next['keys_base64']),
    world.rootToken,
    first['otp'],
    made['encoded_token'],
  ]) {
    assert.ok(!log.includes(String(secret)))
    assert.ok(!log.includes(Buffer.from(String(secret), 'base64').toString('hex')))
  }
})

test('an unreadable static key is answered with 503, and the log names the file', async (t) => {
  const world = await CoreWorld.open(t, {
    raw: true,
    seal: { type: 'static', disabled: false, current: { id: 'k', source: 'file:///nowhere/unseal.key' } },
  })
  const { body, status } = await world.ask('PUT', 'sys/init', { recovery_shares: 1, recovery_threshold: 1 }, NO_TOKEN)
  assert.equal(status, 503)
  assert.doesNotMatch(body.errors.join(), /nowhere/)
  assert.match(JSON.stringify(world.lines), /ENOENT.*nowhere/)
  assert.equal((await world.ask('GET', 'sys/init', undefined, NO_TOKEN)).body['initialized'], false)
})

test('concurrent unseal, reset, seal, start and cancel requests leave the seal consistent', async (t) => {
  const world = await CoreWorld.open(t, { raw: true })
  const { keys } = await initialised(world, { secret_shares: 3, secret_threshold: 2 })
  const random = new Random(11)
  const wrong = Buffer.alloc(33, 7).toString('base64')
  const key = () => ({ key: [...keys, wrong][random.between(0, 3)], nonce: '' })
  const nonceOf = async (path: string) => (await world.ask('GET', path, undefined, NO_TOKEN)).body['nonce']
  const deeds: (() => Promise<{ status: number; text: string }>)[] = [
    () => world.ask('PUT', 'sys/unseal', key(), NO_TOKEN),
    () => world.ask('PUT', 'sys/unseal', key(), NO_TOKEN),
    () => world.ask('PUT', 'sys/unseal', { reset: true }, NO_TOKEN),
    () => world.ask('PUT', 'sys/seal'),
    () => world.ask('GET', 'sys/seal-status', undefined, NO_TOKEN),
    () => world.ask('PUT', 'sys/generate-root/attempt', {}, NO_TOKEN),
    async () => {
      const nonce = await nonceOf('sys/generate-root/attempt')
      return world.ask('PUT', 'sys/generate-root/update', { ...key(), nonce }, NO_TOKEN)
    },
    async () => {
      const nonce = await nonceOf('sys/generate-root/attempt')
      return world.ask('DELETE', 'sys/generate-root/attempt', { nonce }, NO_TOKEN)
    },
    () => world.ask('PUT', 'sys/rotate'),
    () => world.ask('POST', 'cubbyhole/x', { a: random.between(0, 9) }),
    () => world.ask('GET', 'auth/token/lookup-self'),
  ]
  for (let round = 0; round < 30; round++) {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => deeds[random.between(0, deeds.length - 1)]?.() ?? Promise.reject(new Error())),
    )
    for (const { status, text } of answers) assert.ok(status < 500 || status === 503, `${status} ${text}`)
  }
  await world.ask('PUT', 'sys/seal')
  // A share of another attempt may remain.
  await world.ask('PUT', 'sys/unseal', { reset: true }, NO_TOKEN)
  for (const share of keys.slice(0, 2)) await world.ask('PUT', 'sys/unseal', { key: share }, NO_TOKEN)
  assert.equal((await world.ask('GET', 'auth/token/lookup-self')).status, 200)
})

test('the key is rotated on request and by the configured limits', async (t) => {
  const world = await CoreWorld.open(t)
  for (const [path, term] of [
    ['sys/rotate', 2],
    ['sys/rotate/keyring', 3],
  ] as const) {
    assert.equal((await world.ask('PUT', path)).status, 204)
    const { body } = await world.ask('GET', 'sys/key-status')
    assert.deepEqual([body['term'], body.data['term'], body.data['encryptions']], [term, term, 0])
  }
  const config = async () => (await world.ask('GET', 'sys/rotate/config')).body.data
  assert.deepEqual(await config(), { enabled: true, interval: 0, max_operations: 2 ** 31 })
  assert.equal((await world.ask('PUT', 'sys/rotate/config', { interval: '48h', max_operations: 2e6 })).status, 204)
  assert.equal((await world.ask('PUT', 'sys/rotate/config', { enabled: false })).status, 204)
  assert.deepEqual(await config(), { enabled: false, interval: 172_800, max_operations: 2e6 })
  await world.ask('PUT', 'sys/rotate/config', { enabled: true })
  assert.equal(isRotationDue(world.core), false)
  world.nowMs += 172_800_000
  assert.equal(isRotationDue(world.core), true)
  await world.ask('PUT', 'sys/rotate/config', { enabled: false })
  assert.equal(isRotationDue(world.core), false)
  await world.ask('PUT', 'sys/rotate/config', { enabled: true })
  await world.core.barrier.rotate()
  assert.equal(isRotationDue(world.core), false)
  for (const wrong of [{ interval: '1h' }, { max_operations: 10 }, { max_operations: 2 ** 40 }, { interval: '-1s' }]) {
    assert.equal((await world.ask('PUT', 'sys/rotate/config', wrong)).status, 400, JSON.stringify(wrong))
  }
})

test('paths that require a token are refused without one and while the core is sealed', async (t) => {
  const world = await CoreWorld.open(t)
  const paths = [
    ['PUT', 'sys/seal'],
    ['PUT', 'sys/step-down'],
    ['PUT', 'sys/rotate'],
    ['GET', 'sys/key-status'],
    ['GET', 'sys/rotate/config'],
    ['GET', 'sys/rotate/root/init'],
    ['PUT', 'sys/rotate/recovery/init'],
    ['GET', 'sys/generate-root-token/attempt'],
    ['GET', 'sys/rekey/backup'],
  ] as const
  for (const [method, path] of paths) {
    assert.equal((await world.ask(method, path, undefined, NO_TOKEN)).status, 403, path)
    assert.equal((await world.ask(method, path, undefined, { token: 's.unknown' })).status, 403, path)
  }
  assert.equal((await world.ask('PUT', 'sys/step-down')).status, 204)
  assert.equal((await world.ask('PUT', 'sys/seal')).status, 204)
  for (const [method, path] of paths.slice(1)) {
    assert.equal((await world.ask(method, path, undefined, NO_TOKEN)).status, 503, path)
  }
  assert.equal((await world.ask('PUT', 'sys/seal', undefined, NO_TOKEN)).status, 204)
})

test('no malformed body causes a 500', async (t) => {
  const raw = await CoreWorld.open(t, { raw: true })
  const open = await CoreWorld.open(t)
  const sealed = await CoreWorld.open(t)
  await sealed.core.seal()
  const paths = [
    'init',
    'unseal',
    'generate-root/attempt',
    'generate-root/update',
    'rekey/init',
    'rekey/update',
    'rekey/verify',
    'rekey-recovery-key/init',
    'rekey-recovery-key/verify',
    'decode-token',
    'rotate/config',
  ]
  const values = [null, '', 'x', -1, 1e300, true, [], {}, ['a'], { a: 1 }, 'A'.repeat(5000), '\u0000', '__proto__']
  const fields = ['key', 'nonce', 'otp', 'pgp_key', 'secret_shares', 'pgp_keys', 'encoded_token', 'migrate', 'interval']
  for (const world of [raw, open, sealed]) {
    for (const path of paths) {
      for (const value of values) {
        const body = Object.fromEntries(fields.map((name) => [name, value]))
        const { status, text } = await world.ask('PUT', `sys/${path}`, body)
        assert.ok(status < 500 || status === 503, `${path} ${JSON.stringify(value).slice(0, 40)}: ${status} ${text}`)
        for (const method of ['GET', 'DELETE', 'LIST']) {
          const answer = await world.ask(method, `sys/${path}`)
          assert.ok(answer.status < 500 || answer.status === 503, `${method} ${path}: ${answer.status}`)
        }
      }
    }
  }
})
