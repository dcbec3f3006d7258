/** Leases through the whole core, of an engine that gives things out and takes them back as a test likes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { leaseTestEngine } from '../../helpers/lease-test-engine.ts'
import { type CoreAnswer, CoreWorld } from '../../helpers/core-world.ts'
import { quickUserpass } from '../../helpers/quick-userpass.ts'
import { eventually } from '../../helpers/eventually.ts'
import { encodeRecord, recordPath } from '../../../src/secrets/mounts/mount-record.ts'

async function lending(t: Parameters<typeof CoreWorld.open>[0]) {
  const own = leaseTestEngine()
  const world = await CoreWorld.open(t, { engines: [own.engine] })
  assert.equal((await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })).status, 204)
  return { own, world }
}

const idOf = (answer: CoreAnswer) => String(answer.body['lease_id'])

test('a lease is issued, looked up, renewed and revoked once', async (t) => {
  const { own, world } = await lending(t)
  const given = await world.ask('GET', 'lent/creds/app?ttl=100')
  const id = idOf(given)
  assert.match(id, /^lent\/creds\/app\/[0-9A-Za-z]{24}$/)
  assert.equal(given.body['renewable'], true)
  assert.equal(given.body['lease_duration'], 100)
  const looked = await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })
  assert.equal(looked.body.data['path'], 'lent/creds/app')
  assert.equal(looked.body.data['last_renewal'], null)
  world.nowMs += 50_000
  const renewed = await world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment: 200 })
  assert.equal(renewed.status, 200, renewed.text)
  assert.equal(renewed.body['lease_id'], id)
  assert.equal(renewed.body['lease_duration'], 200)
  assert.deepEqual((await world.ask('LIST', 'sys/leases/lookup/')).body.data['keys'], ['lent/'])
  assert.deepEqual((await world.ask('LIST', 'sys/leases/lookup/lent/creds')).body.data['keys'], ['app/'])
  assert.deepEqual((await world.ask('LIST', 'sys/leases/lookup/lent/creds/app')).body.data['keys'], [id.slice(-24)])
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: id })).status, 204)
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: id })).status, 204, 'again')
  assert.deepEqual([...own.revocations], [[1, 1]])
  assert.equal((await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })).body.errors[0], 'invalid lease')
  assert.equal((await world.ask('LIST', 'sys/leases/lookup/')).status, 404)
  assert.deepEqual(
    world.store.paths('sys/lease/').filter((each) => !each.endsWith('salt')),
    [],
    'nothing is left of it',
  )
})

test('a lease expires, and no renewal exceeds its maximum TTL', async (t) => {
  const { own, world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=60&max=100'))
  world.nowMs += 50_000
  assert.equal(
    (await world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment: 999 })).body['lease_duration'],
    50,
  )
  world.nowMs += 49_000
  await world.core.open.leases.expiry.tick()
  assert.equal(own.leased.size, 1)
  world.nowMs += 2000
  assert.equal((await world.ask('PUT', 'sys/leases/renew', { lease_id: id })).body.errors[0], 'lease expired')
  await world.core.open.leases.expiry.tick()
  assert.equal(own.leased.size, 0)
  assert.equal((await world.ask('PUT', 'sys/leases/renew', { lease_id: id })).body.errors[0], 'lease not found')
  const fixed = idOf(await world.ask('GET', 'lent/creds/app?fixed=true'))
  assert.equal(
    (await world.ask('PUT', 'sys/leases/renew', { lease_id: fixed })).body.errors[0],
    'lease is not renewable',
  )
})

test('a lease whose renewal is queued at its expiry is not revoked', async (t) => {
  const { own, world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=60&max=1000'))
  const { store: leases, expiry } = world.core.open.leases
  const hash = leases.hashOf(id)
  const ends = leases.pendingByHash(hash)?.expiresAtMs
  const [mount = ''] = leases.mounts()
  world.nowMs += 59_000
  const renewed = world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment: 500 })
  while (leases.pendingByHash(hash)?.expiresAtMs === ends) await new Promise((resolve) => setImmediate(resolve))
  world.nowMs += 2000
  assert.equal(leases.due(mount, world.nowMs, '', 10).length, 1, 'the renewal is not durable yet')
  await expiry.tick()
  assert.equal((await renewed).status, 200)
  assert.equal(own.leased.size, 1)
  assert.equal((await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })).status, 200)
})

test('leases are revoked with their token, also after its last use', async (t) => {
  const { own, world } = await lending(t)
  await world.ask('POST', 'sys/policies/acl/lent', { policy: 'path "lent/*" { capabilities = ["read"] }' })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['lent'] })
  const token = String(made.body.auth['client_token'])
  for (let at = 0; at < 5; at++)
    assert.equal((await world.ask('GET', 'lent/creds/app', undefined, { token })).status, 200)
  assert.equal(own.leased.size, 5)
  await world.ask('POST', 'auth/token/revoke', { token })
  await eventually(() => own.leased.size === 0, 'all are revoked')
  const once = await world.ask('POST', 'auth/token/create', { policies: ['lent'], num_uses: 1 })
  const answer = await world.ask('GET', 'lent/creds/app', undefined, { token: String(once.body.auth['client_token']) })
  assert.equal(answer.status, 400)
  assert.match(answer.body.errors[0] ?? '', /token had one use left/)
  await eventually(() => own.leased.size === 0, 'it was revoked at once')
})

test('leases of a batch token are revoked with the service token that created it', async (t) => {
  const { own, world } = await lending(t)
  const policy = `path "lent/*" { capabilities = ["read"] }
    path "auth/token/create" { capabilities = ["update"] }`
  await world.ask('POST', 'sys/policies/acl/lent', { policy })
  const create = async (by: string, body: object = {}) => {
    const made = await world.ask('POST', 'auth/token/create', { policies: ['lent'], ...body }, { token: by })
    return String(made.body.auth['client_token'])
  }
  const grandparent = await create(world.rootToken)
  const parent = await create(grandparent)
  const batches = [await create(parent, { type: 'batch' }), await create(parent, { type: 'batch' })]
  const orphan = await create(world.rootToken, { type: 'batch', no_parent: true })
  const lend = async (token: string) => {
    const given = await world.ask('GET', 'lent/creds/app?ttl=3600', undefined, { token })
    assert.equal(given.status, 200, given.text)
  }
  for (const token of [...batches, orphan]) await lend(token)
  await world.ask('POST', 'auth/token/revoke', { token: grandparent })
  await eventually(() => own.leased.size === 1, 'the leases of both batch tokens are revoked')
  assert.deepEqual([...own.leased], [3], 'an orphan has no ancestor to end with')
  const expiring = await create(world.rootToken, { ttl: '1h' })
  await lend(await create(expiring, { type: 'batch', ttl: '2h' }))
  world.nowMs += 3_601_000
  await world.core.open.tokenExpiry.tick()
  await eventually(() => !own.leased.has(4), 'they end with a parent that expires')
  await world.close()
})

test('a lease of a batch token does not outlast the token, also after a renewal', async (t) => {
  const { own, world } = await lending(t)
  await world.ask('POST', 'sys/policies/acl/lent', { policy: 'path "lent/*" { capabilities = ["read"] }' })
  const batch = await world.ask('POST', 'auth/token/create', { type: 'batch', policies: ['lent'], ttl: '1h' })
  const given = await world.ask('GET', 'lent/creds/app?ttl=7200&max=86400', undefined, {
    token: String(batch.body.auth['client_token']),
  })
  assert.equal(given.body['lease_duration'], 3600)
  world.nowMs += 1_800_000
  const renewed = await world.ask('PUT', 'sys/leases/renew', { lease_id: idOf(given), increment: 7200 })
  assert.equal(renewed.body['lease_duration'], 1800)
  world.nowMs += 1_800_000
  await world.core.open.leases.expiry.tick()
  assert.equal(own.leased.size, 0)
})

test('leases of a batch token from a login are revoked when the auth method is disabled', async (t) => {
  const own = leaseTestEngine()
  const world = await CoreWorld.open(t, { engines: [own.engine, quickUserpass] })
  await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })
  await world.ask('POST', 'sys/policies/acl/lent', { policy: 'path "lent/*" { capabilities = ["read"] }' })
  await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })
  const user = { password: 'right', token_policies: 'lent', token_type: 'batch' }
  await world.ask('POST', 'auth/userpass/users/alice', user)
  const made = await world.ask('POST', 'auth/userpass/login/alice', { password: 'right' }, { token: null })
  const token = String(made.body.auth['client_token'])
  for (let at = 0; at < 3; at++) await world.ask('GET', 'lent/creds/app?ttl=3600', undefined, { token })
  assert.equal(own.leased.size, 3)
  assert.equal((await world.ask('DELETE', 'sys/auth/userpass')).status, 204)
  assert.equal(own.leased.size, 0)
})

test('a failed revocation is retried and reported, and succeeds later', async (t) => {
  const { own, world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=60'))
  own.fault = new Error('the cloud is away')
  const refused = await world.ask('PUT', 'sys/leases/revoke', { lease_id: id })
  assert.equal(refused.status, 400)
  assert.match(refused.body.errors[0] ?? '', /will retry: the cloud is away/)
  const { expiry } = world.core.open.leases
  for (let at = 0; at < 8; at++) {
    world.nowMs += 900_000
    await expiry.tick()
  }
  const count = await world.ask('GET', 'sys/leases/count?type=irrevocable')
  assert.deepEqual(count.body.data, { lease_count: 1, counts: { 'lent/': 1 } })
  const listed = await world.ask('GET', 'sys/leases?type=irrevocable')
  const [only] = listed.body.data['leases'] as { lease_id: string; error: string }[]
  assert.equal(only?.lease_id, id)
  assert.equal(only?.error, 'the cloud is away')
  assert.match((await world.ask('DELETE', 'sys/mounts/lent')).body.errors[0] ?? '', /cannot revoke 1 leases of lent\/:/)
  assert.equal((await world.ask('GET', 'lent/creds/app')).status, 200, 'the mount stays as it is')
  own.fault = undefined
  world.nowMs += 900_000
  await expiry.tick()
  assert.ok(!own.leased.has(1))
  assert.equal((await world.ask('GET', 'sys/leases/count?type=irrevocable')).body.data['lease_count'], 0)
  assert.equal((await world.ask('DELETE', 'sys/mounts/lent')).status, 204)
  assert.equal(own.leased.size, 0)
})

test('an engine that hangs does not block others, and revoke-force removes its leases', async (t) => {
  const { own, world } = await lending(t)
  await world.ask('POST', 'sys/mounts/second', { type: 'lender' })
  const id = idOf(await world.ask('GET', 'lent/creds/app'))
  own.hangs = true
  const hung = world.ask('PUT', 'sys/leases/revoke', { lease_id: id })
  await eventually(() => own.isHanging, 'the engine is asked')
  own.hangs = false
  const second = idOf(await world.ask('GET', 'second/creds/app'))
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: second })).status, 204)
  own.fault = new Error('never')
  world.core.open.leases.revocation.close()
  assert.equal((await hung).status, 503)
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-force/lent')).status, 204)
})

test('leases survive a restart and expire in time', async (t) => {
  const { own, world } = await lending(t)
  const kept = idOf(await world.ask('GET', 'lent/creds/app?ttl=1000'))
  await world.ask('GET', 'lent/creds/app?ttl=60')
  await world.close()
  const again = await CoreWorld.reopen(world.directory, world.keys, {
    engines: [own.engine],
    nowMs: world.nowMs + 120_000,
  })
  t.after(() => again.store.close())
  await again.core.open.leases.expiry.tick()
  assert.deepEqual([...own.leased], [1])
  assert.equal((await again.ask('PUT', 'sys/leases/lookup', { lease_id: kept })).status, 200)
  assert.equal((await again.ask('PUT', 'sys/leases/revoke-prefix/lent')).status, 204)
  assert.equal(own.leased.size, 0)
  await again.core.seal()
})

test('the paths of entries reveal nothing of a lease', async (t) => {
  const { world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/planted-role'))
  for (const each of world.store.paths('')) {
    assert.ok(!each.includes('planted-role') && !each.includes(id.slice(-24)), each)
  }
})

test('a clock change of a day neither revokes a lease early nor keeps one', async (t) => {
  const { own, world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=3600'))
  const { expiry } = world.core.open.leases
  for (const byMs of [86_400_000, -172_800_000, 86_400_000]) {
    world.setClock(byMs)
    await expiry.tick()
    assert.equal(own.leased.size, 1, `set by ${byMs} ms, and no time has passed`)
  }
  assert.equal((await world.ask('PUT', 'sys/leases/renew', { lease_id: id })).status, 200)
  world.nowMs += 3_700_000
  await expiry.tick()
  assert.equal(own.leased.size, 0, 'an hour has passed')
})

test('a renewal without an increment grants the TTL of the lease, regardless of earlier increments', async (t) => {
  const { world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=300'))
  const renew = async (increment?: number) =>
    (await world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment })).body['lease_duration']
  assert.equal(await renew(60), 60)
  assert.equal(await renew(), 300)
  const again = idOf(await world.ask('GET', 'lent/creds/app?ttl=60&max=90'))
  world.nowMs += 59_000
  const last = await world.ask('PUT', 'sys/leases/renew', { lease_id: again, increment: 3600 })
  assert.equal(last.body['lease_duration'], 31, 'no further than the maximum')
  world.nowMs += 32_000
  const over = await world.ask('PUT', 'sys/leases/renew', { lease_id: again, increment: 3600 })
  assert.equal(over.body.errors[0], 'lease expired')
})

test('disabling a mount keeps the leases of mounts with similar paths', async (t) => {
  const { own, world } = await lending(t)
  for (const path of ['lent-too', 'len']) {
    assert.equal((await world.ask('POST', `sys/mounts/${path}`, { type: 'lender' })).status, 204)
  }
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=3600'))
  for (const path of ['lent-too', 'len']) await world.ask('GET', `${path}/creds/app`)
  // The same lease by the path of another mount, and a part of its ID.
  for (const foreign of [id.replace('lent/', 'lent-too/'), id.replace('creds', 'cred'), id.slice(5), id.slice(-24)]) {
    assert.equal((await world.ask('PUT', 'sys/leases/lookup', { lease_id: foreign })).body.errors[0], 'invalid lease')
    const renewed = await world.ask('PUT', 'sys/leases/renew', { lease_id: foreign })
    assert.equal(renewed.body.errors[0], 'lease not found')
    assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: foreign, sync: true })).status, 204)
  }
  assert.equal(own.leased.size, 3)
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-prefix/len')).status, 204)
  assert.deepEqual([...own.revocations.keys()], [3], 'a prefix is whole names')
  const two = [idOf(await world.ask('GET', 'lent-too/creds/app2')), idOf(await world.ask('GET', 'lent-too/creds/app'))]
  assert.equal((await world.ask('PUT', `sys/leases/revoke-prefix/${two[1]}`)).status, 204)
  assert.deepEqual([...own.revocations.keys()], [3, 5], 'or the ID of one lease')
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-force/lent-too/creds/app')).status, 204)
  assert.deepEqual([...own.revocations.keys()], [3, 5, 2])
  assert.equal((await world.ask('DELETE', 'sys/mounts/lent')).status, 204)
  assert.deepEqual([...own.revocations.keys()], [3, 5, 2, 1])
  assert.equal((await world.ask('PUT', 'sys/leases/lookup', { lease_id: two[0] })).status, 200)
})

test('leases that are issued while the mount is disabled are revoked, also by the next process and after failures', async (t) => {
  const { own, world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=3600'))
  // As a kill leaves it between the mark and the release: a request was under way.
  const record = world.core.open.mounts.get('lent/')?.record
  assert.ok(record)
  const put = { path: recordPath(record.uuid), value: encodeRecord({ ...record, isLeaving: true }) }
  await world.core.open.storage.commit({ puts: [put], deletes: [] })
  await world.close()
  own.fault = new Error('the cloud is away')
  const again = await CoreWorld.reopen(world.directory, world.keys, { engines: [own.engine] })
  t.after(() => again.store.close())
  const isTold = () => again.lines.some(({ message }) => message === 'removing a disabled mount failed, will retry')
  await eventually(isTold, 'the failure is logged')
  assert.equal((await again.ask('GET', 'lent/creds/app')).status, 404, 'it serves no request')
  assert.equal((await again.ask('PUT', 'sys/leases/lookup', { lease_id: id })).status, 200, 'the lease is not lost')
  assert.ok(again.core.barrier.paths('logical/').length > 0, 'nor what its engine knows of it')
  own.fault = undefined
  again.core.open.mountChanges.resume([{ ...record, isLeaving: true }])
  await eventually(() => again.core.barrier.paths('logical/').length === 0, 'it goes once the engine can')
  assert.deepEqual([[...own.revocations], again.store.paths('sys/lease/id/')], [[[1, 1]], []])
  await again.core.seal()
})

test('a lease whose mount no longer exists is removed at its expiry, and the log has its path', async (t) => {
  const { own, world } = await lending(t)
  await world.ask('GET', 'lent/creds/app?ttl=60')
  const { mounts, storage } = world.core.open
  const record = mounts.get('lent/')?.record
  assert.ok(record)
  // No way through the core leads here: a database that was repaired by hand does.
  await storage.commit({ puts: [], deletes: [recordPath(record.uuid)] })
  await world.close()
  const again = await CoreWorld.reopen(world.directory, world.keys, { nowMs: world.nowMs + 120_000 })
  t.after(() => again.store.close())
  await again.core.open.leases.expiry.tick()
  assert.deepEqual([own.revocations.size, again.store.paths('sys/lease/id/').length], [0, 0])
  const told = again.lines.find(({ message }) => message === 'lease removed, its mount no longer exists')
  assert.equal(told?.fields?.['lease_path'], 'lent/creds/app')
  await again.core.seal()
})

test('a request is refused if its body has another lease ID than the authorized path', async (t) => {
  const { own, world } = await lending(t)
  const [mine, other] = [
    idOf(await world.ask('GET', 'lent/creds/mine')),
    idOf(await world.ask('GET', 'lent/creds/other')),
  ]
  const policy = 'path "sys/leases/+/lent/creds/mine/*" { capabilities = ["update"] }'
  await world.ask('PUT', 'sys/policies/acl/mine', { policy })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['mine'], no_default_policy: true })
  const token = String(made.body.auth['client_token'])
  const send = (action: string, body: object) => world.ask('PUT', `sys/leases/${action}/${mine}`, body, { token })
  for (const action of ['revoke', 'renew']) {
    const refused = await send(action, { lease_id: other, increment: 3600 })
    assert.equal(refused.status, 400, refused.text)
    assert.match(refused.body.errors[0] ?? '', /"lease_id": it differs from the value in the request path/)
  }
  const looked = await world.ask('PUT', 'sys/leases/lookup', { lease_id: other })
  assert.deepEqual([own.leased.size, looked.body.data['last_renewal']], [2, null], 'nothing changed')
  assert.equal((await send('renew', { lease_id: mine })).status, 200, 'the same one twice')
  assert.equal((await send('renew', { lease_id: '' })).status, 200, 'an empty field names none')
  assert.equal((await send('revoke', {})).status, 204)
  assert.equal(own.leased.size, 1)
})

test('revoke-prefix with sync answers 400 with the number of leases that could not be revoked', async (t) => {
  const { own, world } = await lending(t)
  await world.ask('GET', 'lent/creds/app')
  await world.ask('GET', 'lent/creds/app')
  own.fault = new Error('the cloud is away')
  const refused = await world.ask('PUT', 'sys/leases/revoke-prefix/lent', { sync: true })
  assert.equal(refused.status, 400, refused.text)
  assert.match(refused.body.errors[0] ?? '', /^2 leases could not be revoked/)
  const later = await world.ask('PUT', 'sys/leases/revoke-prefix/lent')
  assert.equal(later.status, 200, 'without sync the retries count')
  assert.match(later.body.warnings?.[0] ?? '', /^2 leases could not be revoked/)
  own.fault = undefined
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-prefix/lent', { sync: true })).status, 204)
})

test('revoke-force calls an engine for at most 16 leases concurrently', async (t) => {
  const own = leaseTestEngine()
  let running = 0
  let most = 0
  const release: (() => void)[] = []
  const revoke = async (call: Parameters<NonNullable<typeof own.engine.revoke>>[0]) => {
    most = Math.max(most, ++running)
    await new Promise<void>((resolve) => release.push(resolve))
    running--
    return own.engine.revoke?.(call)
  }
  const world = await CoreWorld.open(t, { engines: [{ ...own.engine, revoke }] })
  await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })
  for (let at = 0; at < 40; at++) await world.ask('GET', 'lent/creds/app')
  const resuming = setInterval(() => release.splice(0).forEach((resume) => resume()), 5)
  t.after(() => clearInterval(resuming))
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-force/lent')).status, 204)
  assert.deepEqual([own.leased.size, most], [0, 16])
})

test('lease tidy answers 202 with a warning and revokes expired leases', async (t) => {
  const { own, world } = await lending(t)
  await world.ask('GET', 'lent/creds/app?ttl=60')
  world.nowMs += 61_000
  const tidied = await world.ask('PUT', 'sys/leases/tidy')
  assert.equal(tidied.status, 202, tidied.text)
  assert.match(tidied.body.warnings?.[0] ?? '', /^Tidy operation successfully started\./)
  await eventually(() => own.leased.size === 0)
})
