/** The worker threads that hash passwords. Timers stand still until a test moves them. */
import assert from 'node:assert/strict'
import { scryptSync } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { getPriority } from 'node:os'
import { mock, test } from 'node:test'
import { deriveKey } from '../../src/auth/userpass/password-hash.ts'
import { userpassEngine } from '../../src/auth/userpass/userpass.ts'
import type { Refusal } from '../../src/platform/errors.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

const SALT = Buffer.from('salt of a test')
const { signal } = new AbortController()
const IDLE_TIMEOUT_MS = 60_000

const originalSetTimeout = setTimeout
mock.timers.enable({ apis: ['setTimeout'] })

/** Rejects where a promise is still pending after a minute of real time. */
async function settled<T>(promise: Promise<T>): Promise<T> {
  const { promise: lost, reject } = Promise.withResolvers<never>()
  const timer = originalSetTimeout(() => reject(new Error('the login is lost')), 60_000)
  try {
    return await Promise.race([promise, lost])
  } finally {
    timer.close()
  }
}

const derive = (password: string, cost = 1024, address = '192.0.2.1') => {
  const scrypt = { keyBytes: 32, cost, blockSize: 8, parallelization: 1, memoryMaxBytes: 16 << 20 }
  return deriveKey({ password, salt: SALT, ...scrypt }, { address, signal })
}
const expected = (password: string) => scryptSync(password, SALT, 32, { cost: 1024 })

/** Priorities of the threads of this process that are lower than its own. */
function lowered(): number[] {
  const own = getPriority()
  const all = readdirSync('/proc/self/task').map((thread) => getPriority(Number(thread)))
  return all.filter((priority) => priority > own)
}

test('a login succeeds right after the idle timeout of the threads that hash passwords', async (t) => {
  const world = await CoreWorld.open(t, { engines: [quickUserpass] })
  await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })
  await world.ask('POST', 'auth/userpass/users/alice', { password: 'right' })
  const login = () => world.ask('POST', 'auth/userpass/login/alice', { password: 'right' }, { token: null })
  for (let round = 0; round < 3; round++) {
    const { status, text } = await settled(login())
    assert.equal(status, 200, `${round}: ${text}`)
    mock.timers.tick(IDLE_TIMEOUT_MS)
  }
})

test('20 logins at the same time from one address all succeed', async (t) => {
  // A hash long enough that all others are queued meanwhile.
  const world = await CoreWorld.open(t, { engines: [userpassEngine({ hashCost: 4096 })] })
  await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })
  await world.ask('POST', 'auth/userpass/users/alice', { password: 'right' })
  const options = { token: null, remote: '192.0.2.1' }
  const login = () => world.ask('POST', 'auth/userpass/login/alice', { password: 'right' }, options)
  const answers = await Promise.all(Array.from({ length: 20 }, login))
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
})

test('a hash that has waited 15 s for a thread is refused with 503 and Retry-After', async () => {
  const all = Promise.allSettled(Array.from({ length: 20 }, () => derive('a')))
  mock.timers.tick(15_000)
  const refused = (await all).flatMap((each) => (each.status === 'rejected' ? [each.reason as Refusal] : []))
  assert.ok(refused.length >= 18 && refused.length < 20, String(refused.length))
  for (const { headers, status } of refused) assert.deepEqual([status, headers['Retry-After']], [503, '2'])
})

test('a full queue of hashes does not let one address exclude the others', async () => {
  const outcomes = new Map<string, number>()
  const ask = async (address: string) => {
    const outcome = await derive('a', 16, address).then(
      () => 'done',
      (error: Refusal) => error.status,
    )
    const key = `${address} ${outcome}`
    outcomes.set(key, (outcomes.get(key) ?? 0) + 1)
  }
  const flood = Array.from({ length: 300 }, () => ask('192.0.2.1'))
  await Promise.all([...flood, ...Array.from({ length: 20 }, () => ask('192.0.2.2'))])
  assert.equal(outcomes.get('192.0.2.2 done'), 20)
  assert.ok((outcomes.get('192.0.2.1 done') ?? 0) >= 256 - 20)
  assert.ok((outcomes.get('192.0.2.1 503') ?? 0) >= 300 - 256)
})

test('keys are those of scrypt, derived by threads of a lower priority', async () => {
  assert.deepEqual(await Promise.all(['a', 'b'].map((each) => derive(each))), [expected('a'), expected('b')])
  assert.deepEqual(await derive('c'), expected('c'))
  const own = getPriority()
  assert.deepEqual(new Set(lowered()), new Set([Math.min(19, own + 10)]))
})

test('a failed hash is a fault and its thread runs the next one', async () => {
  await assert.rejects(derive('a', 1000), { name: 'Fault', message: /a password could not be hashed/ })
  const threads = lowered().length
  assert.deepEqual(await derive('d'), expected('d'))
  assert.equal(lowered().length, threads)
})
