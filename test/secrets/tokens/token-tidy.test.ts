import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../../helpers/core-world.ts'
import { isToken, make, tokenPathsIn } from '../token-world.ts'

test('tidy removes orphaned data and keeps the rest', async (t) => {
  const world = await CoreWorld.open(t)
  const parent = await make(world, { policies: ['root'], ttl: '1h' })
  const child = await make(world, { policies: ['default'], ttl: '30m' }, parent.token)
  await world.ask('PUT', 'cubbyhole/a', { x: 1 }, { token: child.token })
  const before = [...tokenPathsIn(world), ...world.core.barrier.paths('logical/')]
  const cubbyholes = before.at(-1)?.split('/').slice(0, 2).join('/') ?? ''
  const { tokens } = world.core.open
  const [nobody, own] = ['f'.repeat(64), tokens.hashOf(child.token)]
  const stray = [
    `sys/token/accessor/${nobody}/${nobody}`,
    `sys/token/accessor/${nobody}/${own}`,
    `sys/token/parent/${tokens.hashOf(parent.token)}/${nobody}`,
    `sys/token/parent/${nobody}/${own}`,
    `sys/token/expiry/000000000000001/${nobody}`,
    `sys/token/expiry/999999999999999/${own}`,
    `sys/token/revoking/${nobody}`,
    ...Array.from({ length: 70 }, (_, at) => `${cubbyholes}/${String(at).padStart(64, '0')}/a/b`),
  ]
  await world.core.barrier.commit({ puts: stray.map((path) => ({ path, value: Buffer.from('{}') })), deletes: [] })
  const first = await world.ask('POST', 'auth/token/tidy')
  assert.equal(first.status, 202)
  assert.match(String(first.body.warnings?.[0]), /^Tidy operation successfully started/)
  const second = await world.ask('POST', 'auth/token/tidy')
  assert.deepEqual([second.status, second.body.warnings], [202, ['Tidy operation already in progress.']])
  await world.core.open.tidy.idle()
  assert.deepEqual([...tokenPathsIn(world), ...world.core.barrier.paths('logical/')], before)
  assert.ok((await isToken(world, child.token)) && (await isToken(world, parent.token)))
  assert.equal((await world.ask('GET', 'cubbyhole/a', undefined, { token: child.token })).body.data['x'], 1)
})

test('sealing stops a tidy, and the next one removes the rest', async (t) => {
  const world = await CoreWorld.open(t)
  const hashes = Array.from({ length: 300 }, (_, at) => String(at).padStart(64, '0'))
  const puts = hashes.map((hash) => ({ path: `sys/token/accessor/${hash}/${hash}`, value: Buffer.from('x') }))
  await world.core.barrier.commit({ puts, deletes: [] })
  await world.ask('POST', 'auth/token/tidy')
  const { tidy } = world.core.open
  await world.core.seal()
  await tidy.idle()
  world.unseal()
  await world.ask('POST', 'auth/token/tidy')
  await world.core.open.tidy.idle()
  assert.equal(tokenPathsIn(world).length, 2, 'the root token and its accessor')
})
