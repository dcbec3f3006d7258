import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'
import { make } from './token-world.ts'

test('no token or accessor is in the database or the log, and no hash of one in the log', async (t) => {
  const world = await CoreWorld.open(t)
  const planted: string[] = [world.rootToken]
  for (let at = 0; at < 10; at++) {
    const service = await make(world, { ttl: '1h', policies: ['default'], meta: { at: String(at) } })
    const batch = await make(world, { type: 'batch', policies: ['default'] })
    const chosen = randomBytes(16).toString('hex')
    await make(world, { id: chosen, policies: ['default'] })
    planted.push(service.token, service.accessor, batch.token, chosen)
  }
  const [, one = '', accessor = ''] = planted
  await world.ask('POST', 'auth/token/renew', { token: one })
  await world.ask('POST', 'auth/token/lookup', { token: one, toekn: one })
  await world.ask('POST', 'auth/token/lookup-accessor', { accessor })
  const hashes = planted.map((token) => world.core.open.tokens.hashOf(token))
  await world.ask('POST', 'auth/token/revoke', { token: one })
  await world.ask('POST', 'auth/token/tidy')
  await world.core.open.tidy.idle()
  world.nowMs += 3_700_000
  await world.core.open.tokenExpiry.tick()
  const files = readdirSync(world.directory).map((name) => readFileSync(join(world.directory, name)))
  const log = JSON.stringify(world.lines)
  assert.ok(log.includes('token tidy complete'))
  for (const secret of planted) {
    for (const bytes of files) assert.ok(!bytes.includes(secret))
    assert.ok(!log.includes(secret))
  }
  for (const hash of hashes) assert.ok(!log.includes(hash))
})

test('a damaged entry does not block others, and its log line has no hash', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { ttl: '1h', policies: ['default'] })
  const later = await make(world, { ttl: '61m', policies: ['default'] })
  const hash = world.core.open.tokens.hashOf(token)
  await world.store.commit({ puts: [{ path: `sys/token/id/${hash}`, value: randomBytes(80) }], deletes: [] })
  world.core.open.tokens.forget(hash)
  world.nowMs += 3_700_000
  await world.core.open.tokenExpiry.tick()
  const line = world.lines.find(({ message }) => message.startsWith('removing expired tokens failed'))
  assert.ok(line)
  assert.equal(world.core.open.tokens.pending(world.core.open.tokens.hashOf(later.token)), undefined)
  assert.ok(!JSON.stringify(world.lines).includes(hash))
})

test('a forged index entry does not lead an accessor to another token', async (t) => {
  const world = await CoreWorld.open(t)
  const { accessor } = await make(world, { policies: ['default'] })
  const { tokens } = world.core.open
  const folder = `sys/token/accessor/${tokens.hashOf(accessor)}`
  const [own = ''] = world.core.barrier.list(`${folder}/`)
  const puts = [{ path: `${folder}/${tokens.hashOf(world.rootToken)}`, value: new Uint8Array(0) }]
  await world.store.commit({ puts, deletes: [`${folder}/${own}`] })
  const answer = await world.ask('POST', 'auth/token/revoke-accessor', { accessor })
  assert.deepEqual(answer.body.warnings, ['No token found with this accessor'])
})
