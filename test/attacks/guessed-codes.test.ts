/**
 * An attacker has the token or password of a caller but not the second factor: guesses, replays and races of codes, and
 * attempts to bypass them.
 */
import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { bytesOfBase32 } from '../../src/engines/totp/codes.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { type CoreAnswer, CoreWorld } from '../helpers/core-world.ts'
import { mfaHeader, MfaWorld, type Person, START_MS, wrongCode } from '../helpers/mfa-world.ts'
import type { Store } from '../../src/storage/store/store.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

const SAFE = 'cubbyhole/safe'
const POLICY = `
path "cubbyhole/safe" { capabilities = ["create", "read", "update", "delete", "list"] mfa_methods = ["app"] }
path "cubbyhole/both" { capabilities = ["read"] mfa_methods = ["app", "second"] }
path "kept/data/open" { capabilities = ["create", "read", "update"] }
path "kept/+/safe" { capabilities = ["create", "read", "update", "list"] mfa_methods = ["app"] }
path "kept/transaction" { capabilities = ["update"] }
path "sys/mfa/*" { capabilities = ["read"] }
`

interface Target {
  readonly mfa: MfaWorld
  readonly ada: Person
  readonly secret: string
}

async function targetIn(mfa: MfaWorld, parameters = {}): Promise<Target> {
  await mfa.method('app', parameters)
  await mfa.policy('p', POLICY)
  const ada = await mfa.person('ada', ['p'])
  const { secret } = await mfa.enrol('app', ada)
  return { mfa, ada, secret }
}

async function target(t: TestContext, parameters = {}): Promise<Target> {
  return targetIn(await MfaWorld.open(t, { engines: [kv] }), parameters)
}

const isPassed = ({ status }: CoreAnswer) => status === 404

function guess({ ada, mfa, secret }: Target, salt = 0): Promise<CoreAnswer> {
  return mfa.read(ada, SAFE, `app:${wrongCode(secret, mfa.world.nowMs, salt)}`)
}

test('after five wrong codes right codes get 429 with Retry-After, and stay unused', async (t) => {
  const own = await target(t)
  const { ada, mfa, secret } = own
  for (let salt = 0; salt < 5; salt++) assert.equal((await guess(own, salt)).status, 403)
  const code = `app:${mfa.code(secret)}`
  const locked = await mfa.read(ada, SAFE, code)
  assert.deepEqual([locked.status, locked.headers['Retry-After']], [429, '30'])
  assert.match(locked.body.errors[0] ?? '', /Please try again in 30 seconds/)
  mfa.world.nowMs += 29_000
  assert.equal((await mfa.read(ada, SAFE, code)).headers['Retry-After'], '1')
  mfa.world.nowMs += 1000
  assert.ok(isPassed(await mfa.read(ada, SAFE, code)), 'it is the previous period now')
})

test('lock-outs become longer, so that a day allows fewer than two hundred guesses', async (t) => {
  const own = await target(t)
  const { mfa } = own
  const endMs = mfa.world.nowMs + 86_400_000
  let guesses = 0
  const waits: number[] = []
  while (mfa.world.nowMs < endMs) {
    const { headers, status } = await guess(own, guesses)
    if (status === 403) guesses += 1
    else {
      waits.push(Number(headers['Retry-After']))
      mfa.world.nowMs += Number(headers['Retry-After']) * 1000
    }
  }
  assert.deepEqual(waits.slice(0, 8), [30, 60, 120, 240, 480, 960, 1920, 3600])
  assert.ok(guesses < 200, String(guesses))
})

test('a restart keeps the counts of wrong codes, the lock-outs and the used codes', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-mfa-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  let world = await CoreWorld.create(directory, { nowMs: START_MS })
  t.after(() => world.close())
  const restart = async (own: Target): Promise<Target> => {
    const [{ keys }, nowMs] = [world, world.nowMs]
    await world.close()
    world = await CoreWorld.reopen(directory, keys, { nowMs })
    return { ...own, mfa: new MfaWorld(world) }
  }
  let own = await targetIn(new MfaWorld(world))
  const used = own.mfa.code(own.secret)
  assert.ok(isPassed(await own.mfa.read(own.ada, SAFE, `app:${used}`)))
  for (let salt = 0; salt < 4; salt++) assert.equal((await guess(own, salt)).status, 403)
  own = await restart(own)
  assert.equal((await own.mfa.read(own.ada, SAFE, `app:${used}`)).status, 403)
  assert.equal((await guess(own, 4)).status, 403)
  assert.equal((await guess(own, 5)).status, 429)
  own = await restart(own)
  assert.equal((await guess(own, 6)).status, 429)
})

test('a process killed right after a response has stored the attempt', async (t) => {
  const own = await target(t)
  const { ada, mfa, secret } = own
  const { directory, keys, nowMs } = mfa.world
  const code = `app:${mfa.code(secret)}`
  const afterKill = async (ask: (copy: MfaWorld) => Promise<CoreAnswer>) => {
    const copy = mkdtempSync(join(tmpdir(), 'outpost-mfa-'))
    t.after(() => rmSync(copy, { recursive: true, force: true }))
    cpSync(directory, copy, { recursive: true })
    const world = await CoreWorld.reopen(copy, keys, { nowMs, engines: [quickUserpass, kv] })
    try {
      return (await ask(new MfaWorld(world))).status
    } finally {
      await world.close()
    }
  }
  assert.ok(isPassed(await mfa.read(ada, SAFE, code)))
  assert.equal(await afterKill((copy) => copy.read(ada, SAFE, code)), 403)
  for (let salt = 0; salt < 5; salt++) await guess(own, salt)
  assert.equal(await afterKill((copy) => copy.read(ada, SAFE, `app:${mfa.code(secret, 1)}`)), 429)
})

test('of fifty concurrent callers with one code one succeeds, and the others cause no lock-out', async (t) => {
  const { ada, mfa, secret } = await target(t)
  const code = `app:${mfa.code(secret)}`
  const answers = await Promise.all(Array.from({ length: 50 }, () => mfa.read(ada, SAFE, code)))
  assert.equal(answers.filter(isPassed).length, 1)
  assert.equal(new Set(answers.filter((each) => !isPassed(each)).map(({ text }) => text)).size, 1)
  assert.ok(isPassed(await mfa.read(ada, SAFE, `app:${mfa.code(secret, 1)}`)))
})

test('fifty concurrent guesses count as five', async (t) => {
  const own = await target(t)
  const answers = await Promise.all(Array.from({ length: 50 }, (_, salt) => guess(own, salt)))
  const count = (wanted: number) => answers.filter(({ status }) => status === wanted).length
  assert.deepEqual([count(403), count(429)], [5, 45])
})

test('a used code is refused in every other notation, and malformed codes do not count as attempts', async (t) => {
  const { ada, mfa, secret } = await target(t)
  const id = String((await mfa.world.ask('GET', 'sys/mfa/method/totp/app')).body.data['id'])
  const code = mfa.code(secret)
  assert.ok(isPassed(await mfa.read(ada, SAFE, `app:${code}`)))
  const writings = [code, ` ${code}`, `${code} `, `passcode=${code}`, `0${code}`, `${code}0`, `${code}\t`, `+${code}`]
  const texts = new Set<string>()
  for (const writing of [...writings, `${code}.0`, code.replace(/\d/, 'x'), '٣٣٣٣٣٣', '9'.repeat(4000)]) {
    for (const name of ['app', id]) {
      const answer = await mfa.read(ada, SAFE, `${name}:${writing}`)
      assert.equal(answer.status, 403, writing)
      texts.add(answer.text)
    }
  }
  assert.equal(texts.size, 1)
  assert.ok(isPassed(await mfa.read(ada, SAFE, `app:${mfa.code(secret, 1)}`)), 'not locked out')
})

test('codes of other periods are accepted within the skew, in any order, once each', async (t) => {
  const { ada, mfa, secret } = await target(t)
  const passes = async (periods: number) => isPassed(await mfa.read(ada, SAFE, `app:${mfa.code(secret, periods)}`))
  assert.deepEqual(
    [await passes(2), await passes(-2), await passes(20), await passes(-20)],
    [false, false, false, false],
  )
  assert.deepEqual([await passes(1), await passes(-1), await passes(0)], [true, true, true])
  assert.deepEqual([await passes(1), await passes(-1), await passes(0)], [false, false, false])
  mfa.world.setClock(-90_000)
  assert.deepEqual(
    [await passes(2), await passes(0), await passes(3)],
    [false, true, false],
    'a clock that is set back',
  )
  await mfa.world.ask('POST', 'sys/mfa/method/totp/strict', { issuer: 'x', skew: 0, qr_size: 0 })
  await mfa.policy('p', POLICY.replaceAll('"app"', '"strict"'))
  const strict = (await mfa.enrol('strict', ada)).secret
  const isIn = async (periods: number) => isPassed(await mfa.read(ada, SAFE, `strict:${mfa.code(strict, periods)}`))
  assert.deepEqual([await isIn(-1), await isIn(1), await isIn(0)], [false, false, true])
})

test('codes of several methods are judged together, and a right code beside a wrong one is used up', async (t) => {
  const { ada, mfa, secret } = await target(t)
  await mfa.method('second')
  const second = (await mfa.enrol('second', ada)).secret
  const at = 'cubbyhole/both'
  const [one, two] = [mfa.code(secret), mfa.code(second)]
  assert.equal((await mfa.read(ada, at, `app:${one}`)).status, 403)
  assert.ok(isPassed(await mfa.read(ada, at, `second:${two}`, `app:${one}`)), 'alone it was not looked at')
  const [next, wrong] = [mfa.code(secret, 1), wrongCode(second, mfa.world.nowMs)]
  assert.equal((await mfa.read(ada, at, `app:${next}`, `second:${wrong}`)).status, 403)
  assert.equal((await mfa.read(ada, at, `app:${next}`, `second:${mfa.code(second, 1)}`)).status, 403)
  assert.equal((await mfa.read(ada, at, `app:${mfa.code(secret, -1)}`, `second:${mfa.code(second, -1)}`)).status, 404)
})

test('a flood of guesses at one entity locks out no other entity and causes few writes', async (t) => {
  let commits = 0
  const wrap = (real: Store): Store => {
    const store = steppedStore(real, () => undefined)
    return { ...store, commit: (batch) => (commits++, store.commit(batch)) }
  }
  const own = await targetIn(await MfaWorld.open(t, { wrap }))
  const { mfa } = own
  const bob = await mfa.person('bob', ['p'])
  const ofBob = (await mfa.enrol('app', bob)).secret
  commits = 0
  for (let salt = 0; salt < 500; salt++) await guess(own, salt)
  assert.equal(commits, 5)
  assert.ok(isPassed(await mfa.read(bob, SAFE, `app:${mfa.code(ofBob)}`)))
})

test('other verbs, slashes, lists, wrapping, transactions and other entities do not bypass the code', async (t) => {
  const { ada, mfa, secret } = await target(t)
  const { world } = mfa
  await world.ask('POST', 'sys/mounts/kept', { type: 'kv', options: { version: '2' } })
  await world.ask('POST', 'kept/data/safe', { data: { value: 'hidden' } })
  const bob = await mfa.person('bob', ['p'])
  const ofBob = (await mfa.enrol('app', bob)).secret
  const { token } = ada
  const asked: readonly (readonly [string, string, unknown?])[] = [
    ['GET', SAFE],
    ['GET', `${SAFE}/`],
    ['GET', `/${SAFE}`],
    ['GET', 'cubbyhole//safe'],
    ['LIST', SAFE],
    ['GET', `${SAFE}?list=true`],
    ['DELETE', SAFE],
    ['PUT', SAFE, { x: 1 }],
    ['GET', 'kept/data/safe'],
    ['GET', 'kept/data/safe?version=1'],
    ['GET', 'kept/metadata/safe'],
    ['GET', 'kept/subkeys/safe'],
    ['POST', 'kept/transaction', { operations: [{ operation: 'read', path: 'safe' }] }],
    ['POST', 'kept/transaction', { operations: [{ operation: 'put', path: 'safe', data: { value: 'mine' } }] }],
  ]
  for (const [method, path, body] of asked) {
    const plain = await world.ask(method, path, body, { token })
    assert.ok(plain.status === 403 || plain.status === 404 || plain.status === 400, `${method} ${path} ${plain.text}`)
    assert.ok(!plain.text.includes('hidden'), `${method} ${path}`)
  }
  const foreign = await world.ask('GET', SAFE, undefined, mfaHeader(token, [`app:${mfa.code(ofBob)}`]))
  assert.equal(foreign.status, 403)
  const headers = { 'X-Vault-MFA': 'app', 'X-Vault-Wrap-TTL': '60' }
  assert.equal((await world.ask('GET', 'kept/data/safe', undefined, { token, headers })).status, 403)
  const read = await world.ask('GET', 'kept/data/safe', undefined, mfaHeader(token, [`app:${mfa.code(secret)}`]))
  assert.equal(read.status, 200)
  const value = ((read.body.data['data'] ?? {}) as { value?: string }).value
  assert.equal(value, 'hidden')
})

test('a trailing slash is the same path and needs the same code', async (t) => {
  const { ada, mfa, secret } = await target(t)
  await mfa.policy(
    'p',
    `path "sys/*" { capabilities = ["read"] }
    path "sys/mounts" { capabilities = ["read"] mfa_methods = ["app"] }`,
  )
  assert.equal((await mfa.read(ada, 'sys/auth/')).status, 200)
  assert.equal((await mfa.read(ada, 'sys/mounts/')).status, 403)
  assert.equal((await mfa.read(ada, 'sys/mounts/', `app:${mfa.code(secret)}`)).status, 200)
})

test('a code that cannot be recorded is refused, and a guess that cannot be counted reveals nothing', async (t) => {
  let isFull = false
  const world = await CoreWorld.open(t, {
    nowMs: START_MS,
    wrap: (real) => {
      const store = steppedStore(real, () => undefined)
      return {
        ...store,
        commit: (batch) => (isFull ? Promise.reject(new Error('the disk is full')) : store.commit(batch)),
      }
    },
  })
  const own = await targetIn(new MfaWorld(world))
  const { ada, mfa, secret } = own
  isFull = true
  await assert.rejects(mfa.read(ada, SAFE, `app:${mfa.code(secret)}`), /the disk is full/)
  await assert.rejects(guess(own), /the disk is full/)
  isFull = false
  assert.ok(isPassed(await mfa.read(ada, SAFE, `app:${mfa.code(secret)}`)))
})

test('malformed MFA headers are 400 and do not count as attempts, and a header may be repeated', async (t) => {
  const { ada, mfa, secret } = await target(t)
  for (const [header, why] of [
    ['', 'missing method name or ID'],
    [':', 'missing method name or ID'],
    [':123456', 'missing method name or ID'],
    ['app:', 'missing method value'],
    ['app:passcode=', 'missing method value'],
    ['app:123456,', 'missing method name or ID'],
    ['app:123456,app:123456', 'found multiple passcodes for the same MFA method'],
    [Array.from({ length: 17 }, (_, at) => `m${at}:1`).join(','), 'at most 16 methods'],
  ] as const) {
    const answer = await mfa.world.ask('GET', SAFE, undefined, { token: ada.token, headers: { 'X-Vault-MFA': header } })
    assert.equal(answer.status, 400, header)
    assert.match(answer.body.errors[0] ?? '', new RegExp(`^failed to parse X-Vault-MFA header: .*${why}`))
  }
  const port = await listenTo(t, mfa.world)
  const status = await new Promise((resolve, reject) => {
    const headers = { 'X-Vault-Token': ada.token, 'X-Vault-MFA': ['other:1', `app:${mfa.code(secret)}`] }
    request({ port, host: '127.0.0.1', path: `/v1/${SAFE}`, headers }, ({ statusCode }) => resolve(statusCode))
      .on('error', reject)
      .end()
  })
  assert.equal(status, 404)
})

test('keys, codes and recovery codes appear in no log, audit line or database', async (t) => {
  const { ada, mfa, secret } = await target(t, { recovery_codes: 1, require_confirmation: false })
  const { world } = mfa
  const file = join(world.directory, 'audit.log')
  await world.ask('POST', 'sys/config/auditing/request-headers/X-Vault-MFA', { hmac: false })
  for (const [name, raw] of [
    ['a', 'false'],
    ['b', 'true'],
  ] as const) {
    const options = { file_path: `${file}.${name}`, log_raw: raw }
    assert.equal((await world.ask('PUT', `sys/audit/${name}`, { type: 'file', options })).status, 204)
  }
  const bob = await mfa.person('bob', ['p'])
  const quiet = { ...(await mfa.enrol('app', bob)) }
  const codes = [mfa.code(secret), wrongCode(secret, world.nowMs)]
  for (const code of codes) await mfa.read(ada, SAFE, `app:${code}`)
  const [recovery = ''] = quiet.recovery_codes ?? []
  await mfa.read(bob, SAFE, `app:${recovery}`)
  const headerLines = readFileSync(`${file}.b`, 'utf8')
    .split('\n')
    .filter((line) => line.includes(`"${SAFE}"`))
  assert.ok(headerLines.length > 0)
  for (const line of headerLines) {
    assert.match(line, /"x-vault-mfa":\["app"\]/)
    for (const code of [...codes, recovery]) assert.ok(!line.includes(`app:${code}`) && !line.includes(`"${code}"`))
  }
  const key = bytesOfBase32(quiet.secret) ?? assert.fail()
  const planted = [quiet.secret, key.toString('base64'), key.toString('hex'), recovery, recovery.replaceAll('-', '')]
  const logged = JSON.stringify(world.lines) + readFileSync(`${file}.a`, 'utf8')
  for (const text of planted) assert.ok(!logged.includes(text))
  await world.core.seal()
  for (const name of readdirSync(world.directory).filter((each) => each.startsWith('secrets.db'))) {
    const bytes = readFileSync(join(world.directory, name))
    for (const text of [...planted, key]) assert.ok(!bytes.includes(text), name)
  }
})
