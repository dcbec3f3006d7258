/** Secrets without versions, and how they get them: what the compatible servers' own tests say, by their numbers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { listenTo } from '../../helpers/core-listener.ts'
import { expectStatus as expect, openKv, readSecret as read } from '../../helpers/kv-world.ts'
import { send } from '../../helpers/openbao-replay.ts'

test('version 1 supports read, write, delete, list and scan, and ttl becomes the lease duration', async (t) => {
  const world = await openKv(t, '1')
  await expect(world, 404, 'GET', 'secret/a')
  for (const body of [{}, undefined, '']) {
    assert.deepEqual((await expect(world, 400, 'POST', 'secret/a', body)).errors, ['missing data fields'])
  }
  await expect(world, 204, 'POST', 'secret/a', { x: 1 })
  await expect(world, 204, 'PUT', 'secret/f/b', { x: 2 })
  const { data, lease_duration: lease, lease_id: id, renewable } = await expect(world, 200, 'GET', 'secret/a')
  assert.deepEqual([data, lease, id, renewable], [{ x: 1 }, 2_764_800, '', false])
  await expect(world, 204, 'POST', 'secret/a', { y: 1 })
  assert.deepEqual((await expect(world, 200, 'GET', 'secret/a')).data, { y: 1 }, 'written over')
  assert.deepEqual((await expect(world, 200, 'LIST', 'secret')).data['keys'], ['a', 'f/'])
  assert.deepEqual((await expect(world, 200, 'LIST', 'secret/?limit=1&after=a')).data['keys'], ['f/'])
  assert.deepEqual((await expect(world, 200, 'SCAN', 'secret')).data['keys'], ['a', 'f/b'])
  assert.deepEqual((await expect(world, 404, 'LIST', 'secret/a')).errors, [])
  await expect(world, 405, 'PATCH', 'secret/a', { z: 1 })
  await expect(world, 400, 'POST', 'secret/f/', { x: 1 })
  for (const [given, seconds] of [
    ['1h', 3600],
    [90, 90],
    ['90', 90],
    ['soon', 2_764_800],
    [{}, 2_764_800],
  ] as const) {
    for (const name of ['ttl', 'lease']) {
      await expect(world, 204, 'POST', 'secret/lease', { [name]: given })
      assert.equal(
        (await expect(world, 200, 'GET', 'secret/lease'))['lease_duration'],
        seconds,
        `${name} ${JSON.stringify(given)}`,
      )
    }
  }
  await expect(world, 204, 'DELETE', 'secret/a')
  await expect(world, 204, 'DELETE', 'secret/a')
  await expect(world, 404, 'GET', 'secret/a')
  assert.deepEqual((await expect(world, 200, 'SCAN', 'secret')).data['keys'], ['lease', 'f/b'])
})

test('version 1 preserves the notation of numbers and the names of members', async (t) => {
  const world = await openKv(t, '1')
  const text = '{"big":12345678901234567890,"one":1.0,"tiny":1e-7,"__proto__":{"a":[0.10]},"twice":1,"twice":2}'
  await expect(world, 204, 'POST', 'secret/a', text)
  const { text: answer } = await world.ask('GET', 'secret/a')
  assert.ok(
    answer.includes('"data":{"big":12345678901234567890,"one":1.0,"tiny":1e-7,"__proto__":{"a":[0.10]},"twice":2}'),
  )
})

test('secrets have the default lease of their mount', async (t) => {
  const world = await openKv(t, '1')
  await expect(world, 204, 'POST', 'secret/a', { x: 1 })
  await expect(world, 204, 'POST', 'sys/mounts/secret/tune', { default_lease_ttl: '2h' })
  assert.equal((await expect(world, 200, 'GET', 'secret/a'))['lease_duration'], 7200)
})

test('during an upgrade from version 1 every secret stays readable and becomes version 1 of itself', async (t) => {
  const world = await openKv(t, '1')
  const port = await listenTo(t, world)
  const names = Array.from({ length: 300 }, (_, at) => `f${at % 7}/key${at}`)
  await Promise.all(names.map((name, at) => expect(world, 204, 'POST', `secret/${name}`, { at, big: at * 1024 })))
  const headers = { 'X-Vault-Token': world.rootToken }
  const answers: number[] = []
  const reading = new AbortController()
  const reader = (async () => {
    while (!reading.signal.aborted) {
      for (const path of ['secret/f0/key0', 'secret/data/f0/key0']) {
        const { status } = await send(port, { method: 'GET', path: `/v1/${path}`, headers })
        answers.push(status)
      }
    }
  })()
  const { warnings } = await expect(world, 200, 'POST', 'sys/mounts/secret/tune', { options: { version: '2' } })
  assert.match(warnings?.[0] ?? '', /version 2/)
  await read(world, names[0] ?? '')
  reading.abort()
  await reader
  assert.ok(
    answers.every((status) => status === 200 || status === 404),
    'never told to wait',
  )
  for (const [at, name] of names.entries()) {
    const { data, metadata } = await read(world, name)
    assert.deepEqual([data, metadata?.['version']], [{ at, big: at * 1024 }, 1])
  }
  const { data } = await expect(world, 200, 'POST', `secret/data/${names[0]}`, {
    data: { next: 1 },
    options: { cas: 1 },
  })
  assert.equal(data['version'], 2)
  assert.deepEqual((await read(world, names[0] ?? '', '?version=1')).data, { at: 0, big: 0 })
  const down = await expect(world, 400, 'POST', 'sys/mounts/secret/tune', { options: { version: '1' } })
  assert.match(down.errors[0] ?? '', /cannot downgrade/)
  await world.core.seal()
  world.unseal()
  assert.deepEqual((await read(world, names[5] ?? '')).data, { at: 5, big: 5 * 1024 })
})

test('kv-v2 is kv with option version 2; kv and kv-v1 have no versions; other options are refused', async (t) => {
  const world = await openKv(t)
  const mount = async (path: string, body: object) => {
    await expect(world, 204, 'POST', `sys/mounts/${path}`, body)
    const { data } = await expect(world, 200, 'GET', `sys/mounts/${path}`)
    return [data['type'], data['options']]
  }
  assert.deepEqual(await mount('a', { type: 'kv-v2' }), await mount('b', { type: 'kv', options: { version: '2' } }))
  assert.deepEqual(await mount('c', { type: 'kv' }), ['kv', {}])
  assert.deepEqual(await mount('d', { type: 'kv-v1' }), ['kv', { version: '1' }])
  for (const path of ['a', 'b']) await expect(world, 200, 'POST', `${path}/data/x`, { data: { x: 1 } })
  for (const path of ['c', 'd']) {
    await expect(world, 204, 'POST', `${path}/data/x`, { data: { x: 1 } })
    assert.deepEqual((await expect(world, 200, 'GET', `${path}/data/x`)).data, { data: { x: 1 } })
  }
  for (const version of ['0', '3', 'x']) {
    await expect(world, 400, 'POST', 'sys/mounts/e', { type: 'kv', options: { version } })
  }
})
