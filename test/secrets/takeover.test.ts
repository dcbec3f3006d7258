/** Decisions of a core that was killed hold for the next active server: what decides is in its entries. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Engine } from '../../src/engines/framework/engine.ts'
import { approle } from '../../src/auth/approle/approle.ts'
import { totp } from '../../src/engines/totp/totp.ts'
import { type CoreAnswer, CoreWorld } from '../helpers/core-world.ts'
import { MfaWorld } from '../helpers/mfa-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'
import { ScriptedReplication } from '../helpers/scripted-replication.ts'
import { takeOver } from '../helpers/takeover.ts'
import { make, tokenPathsIn } from './token-world.ts'

const engines = [quickUserpass, approle, totp]

async function opened(t: TestContext): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { engines })
  await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })
  await world.ask('POST', 'auth/userpass/users/ada', { password: 'right' })
  return world
}

async function statuses(answers: readonly Promise<CoreAnswer>[]): Promise<number[]> {
  return (await Promise.all(answers)).map(({ status }) => status)
}

function logIn(world: CoreWorld, password: string, name = 'ada'): Promise<CoreAnswer> {
  return world.ask('POST', `auth/userpass/login/${name}`, { password }, { token: null })
}

function lookUp(world: CoreWorld, remote: string): Promise<CoreAnswer> {
  return world.ask('GET', 'auth/token/lookup-self', undefined, { remote })
}

test('failed logins count across takeovers, so each takeover allows no further guess', async (t) => {
  let world = await opened(t)
  for (let guess = 1; guess <= 5; guess++) {
    assert.equal((await logIn(world, 'wrong')).status, 400)
    assert.equal((await logIn(world, 'wrong', 'unknown')).status, 400)
    world = await takeOver(t, world, { engines })
  }
  assert.deepEqual(await statuses([logIn(world, 'right'), logIn(world, 'right', 'unknown')]), [403, 403])
  const { data } = (await world.ask('GET', 'sys/locked-users')).body
  assert.equal(data['total'], 2)
  const accessor = String((await world.ask('GET', 'sys/auth/userpass')).body.data['accessor'])
  await world.ask('POST', `sys/locked-users/${accessor}/unlock/ada`)
  world = await takeOver(t, world, { engines })
  assert.deepEqual(await statuses([logIn(world, 'right'), logIn(world, 'right', 'unknown')]), [200, 403])
})

test('a successful login resets the count of failed ones for the next active server too', async (t) => {
  const world = await opened(t)
  for (let guess = 0; guess < 4; guess++) await logIn(world, 'wrong')
  assert.equal((await logIn(world, 'right')).status, 200)
  const next = await takeOver(t, world, { engines })
  for (let guess = 0; guess < 4; guess++) await logIn(next, 'wrong')
  assert.equal((await logIn(next, 'right')).status, 200)
})

test('a server that is active again does not use counts from its earlier activity', async (t) => {
  const world = await opened(t)
  for (let guess = 0; guess < 4; guess++) await logIn(world, 'wrong')
  await world.core.enterStandby()
  // Another server has unlocked the name meanwhile.
  world.core.barrier.openFromStandby()
  const [path = ''] = world.core.barrier.paths('core/lockout/')
  await world.core.barrier.commit({ puts: [], deletes: [path] })
  world.core.barrier.enterStandby()
  await world.core.leaveStandby()
  assert.deepEqual(await statuses([logIn(world, 'wrong')]), [400])
  assert.equal((await logIn(world, 'right')).status, 200)
})

test('a caller that a quota has blocked stays blocked after a takeover; others start with a full bucket', async (t) => {
  const world = await opened(t)
  await world.ask('POST', 'sys/quotas/rate-limit/all', { rate: 2, interval: '1s', block_interval: '1h' })
  const three = async (from: CoreWorld, remote: string) =>
    [await lookUp(from, remote), await lookUp(from, remote), await lookUp(from, remote)].map(({ status }) => status)
  assert.deepEqual(await three(world, '10.0.0.1'), [200, 200, 429])
  assert.deepEqual(await statuses([lookUp(world, '10.0.0.2'), lookUp(world, '10.0.0.2')]), [200, 200])
  const next = await takeOver(t, world, { engines })
  assert.deepEqual(await three(next, '10.0.0.1'), [429, 429, 429])
  assert.deepEqual(await three(next, '10.0.0.2'), [200, 200, 429])
  next.nowMs += 3_600_000
  assert.deepEqual(await three(next, '10.0.0.1'), [200, 200, 429])
})

test('wrong codes of a TOTP key count across takeovers', async (t) => {
  let world = await opened(t)
  await world.ask('POST', 'sys/mounts/totp', { type: 'totp' })
  await world.ask('POST', 'totp/keys/k', { generate: true, issuer: 'x', account_name: 'y' })
  const check = () => world.ask('POST', 'totp/code/k', { code: 'wrong' })
  for (let guess = 0; guess < 5; guess++) {
    assert.equal((await check()).status, 200)
    world = await takeOver(t, world, { engines })
  }
  assert.equal((await check()).status, 429)
  world.nowMs += 30_000
  assert.equal((await check()).status, 200)
})

test('the second step of a login, and of a rekey, is refused with the advice to start again', async (t) => {
  const world = await opened(t)
  const mfa = new MfaWorld(world)
  await mfa.method('app')
  const method = String((await world.ask('GET', 'sys/mfa/method/totp/app')).body.data['id'])
  const entity = String((await logIn(world, 'right')).body.auth['entity_id'])
  await mfa.enrol('app', { entityId: entity, token: '' })
  const rule = { mfa_method_ids: [method], auth_method_types: ['userpass'] }
  await world.ask('POST', 'identity/mfa/login-enforcement/all', rule)
  const first = (await logIn(world, 'right')).body.auth['mfa_requirement'] as { readonly mfa_request_id: string }
  const rekey = await world.ask('POST', 'sys/rekey/init', { secret_shares: 1, secret_threshold: 1 })
  const root = await world.ask('POST', 'sys/generate-root/attempt')
  const next = await takeOver(t, world, { engines })
  const key = world.keys.unsealKey
  const steps = [
    next.ask('POST', 'sys/mfa/validate', { ...first, mfa_payload: { app: ['123456'] } }, { token: null }),
    next.ask('POST', 'sys/rekey/update', { key, nonce: rekey.body['nonce'] }),
    next.ask('POST', 'sys/generate-root/update', { key, nonce: root.body['nonce'] }),
  ]
  for (const { status, text } of await Promise.all(steps)) {
    assert.equal(status, 400, text)
    assert.match(text, /active server changed; (?:start|log in) again/)
  }
})

test('the clock of the next active server does not go back if its machine is behind', async (t) => {
  const world = await opened(t)
  await world.core.enterStandby()
  const lastMs = world.core.now() + 60_000
  world.setClock(-240_000)
  await world.core.leaveStandby(lastMs)
  assert.equal(world.core.now(), lastMs)
  world.nowMs += 10_000
  assert.equal(world.core.now(), lastMs + 9000, 'it approaches the clock of the machine')
})

/** An engine that calls `work` in each round. */
function periodicEngine(work: () => Promise<void>): Engine {
  return { type: 'periodic', description: 'counts its rounds', paths: [], periodic: work }
}

test('a fenced primary does no background work until it serves again', async (t) => {
  let rounds = 0
  const replication = new ScriptedReplication()
  replication.mode = 'primary'
  const world = await CoreWorld.open(t, { engines: [periodicEngine(async () => void rounds++)], replication })
  await world.ask('POST', 'sys/mounts/periodic', { type: 'periodic' })
  const lasting = tokenPathsIn(world)
  await make(world, { ttl: '10s' })
  const { leases, periodicWork, tokenExpiry } = world.core.open
  const work = () => Promise.all([periodicWork.tick(), tokenExpiry.tick(), leases.expiry.tick()])
  await work()
  replication.fence = { reason: 'replaced', text: 'replaced by "b"' }
  await world.store.setRole('fenced', 1)
  const before = rounds
  const refused = world.store.commitCounts.failed.fenced
  world.nowMs += 3_600_000
  await work()
  assert.deepEqual([rounds, world.store.commitCounts.failed.fenced], [before, refused], 'nothing is attempted')
  assert.deepEqual(
    world.lines.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
  await world.store.setRole('own', 2)
  replication.fence = undefined
  await work()
  assert.ok(rounds > before)
  assert.deepEqual(tokenPathsIn(world), lasting, 'the expired token is removed')
})

test('a standby does no work of the active server', async (t) => {
  let rounds = 0
  const world = await CoreWorld.open(t, { engines: [periodicEngine(async () => void rounds++)] })
  await world.ask('POST', 'sys/mounts/periodic', { type: 'periodic' })
  const made = await world.ask('POST', 'auth/token/create', { ttl: '10s' })
  const { leases, periodicWork, tokenExpiry } = world.core.open
  await periodicWork.tick()
  assert.ok(rounds > 0)
  await world.core.enterStandby()
  const [before, entries] = [rounds, world.store.paths('').length]
  world.nowMs += 3_600_000
  await Promise.all([periodicWork.tick(), tokenExpiry.tick(), leases.expiry.tick()])
  assert.deepEqual([rounds, world.store.paths('').length], [before, entries])
  assert.deepEqual(
    world.lines.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
  await world.core.leaveStandby()
  await world.core.open.tokenExpiry.tick()
  const token = String(made.body.auth['client_token'])
  assert.equal((await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status, 403)
})
