/** Large, numerous, deeply nested and unusual secrets. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { expectStatus as expect, openKv, readSecret as read, writeSecret as write } from '../../helpers/kv-world.ts'

/** Ten thousand in the long form. */
const MANY = Number(process.env['OUTPOST_MANY_SECRETS'] ?? 1500)

const deep = (levels: number) => '{"a":'.repeat(levels) + '1' + '}'.repeat(levels)

test('values of 1 MiB and 8 MiB are returned unchanged', async (t) => {
  const world = await openKv(t)
  for (const bytes of [1 << 20, 8 << 20]) {
    const data = { blob: 'v'.repeat(bytes) }
    await write(world, 'big', data)
    assert.deepEqual((await read(world, 'big')).data, data)
  }
})

test('a patch cannot make a secret larger than a write could', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { one: 'v'.repeat(17 << 20) })
  const { errors } = await expect(world, 400, 'PATCH', 'secret/data/a', { data: { two: 'v'.repeat(17 << 20) } })
  assert.match(errors[0] ?? '', /^a secret can have at most 33554432 bytes/)
  assert.equal((await read(world, 'a')).metadata?.['version'], 1)
})

test('a folder of thousands of secrets is listed whole and in pages, and can be emptied', async (t) => {
  const world = await openKv(t)
  const names = Array.from({ length: MANY }, (_, at) => `key-${String(at).padStart(5, '0')}`)
  for (let at = 0; at < names.length; at += 500) {
    const secrets = Object.fromEntries(names.slice(at, at + 500).map((name) => [name, { data: { name } }]))
    await expect(world, 200, 'POST', 'secret/import/many', { secrets })
  }
  assert.deepEqual((await expect(world, 200, 'LIST', 'secret/metadata/many')).data['keys'], names)
  const page = await expect(world, 200, 'LIST', 'secret/metadata/many?after=key-01000&limit=3')
  assert.deepEqual(page.data['keys'], ['key-01001', 'key-01002', 'key-01003'])
  assert.deepEqual((await read(world, `many/${names.at(-1)}`)).data, { name: names.at(-1) })
  for (let at = 0; at < names.length; at += 500) {
    const operations = names.slice(at, at + 500).map((name) => ({ op: 'remove', path: `many/${name}` }))
    await expect(world, 200, 'POST', 'secret/transaction', { operations })
  }
  await expect(world, 404, 'LIST', 'secret/metadata')
  const view = world.core.open.mounts.get('secret/')?.storage
  assert.deepEqual([view?.list('k/'), view?.list('f/')], [[], []])
})

test('a secret may have thousands of versions', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: MANY })
  for (let at = 0; at < MANY; at += 500) {
    const operations = Array.from({ length: 500 }, (_, step) => ({ op: 'put', path: 'a', data: { x: at + step } }))
    await expect(world, 200, 'POST', 'secret/transaction', { operations })
  }
  assert.deepEqual((await read(world, 'a', '?version=1')).data, { x: 0 })
  assert.deepEqual((await read(world, 'a')).data, { x: MANY - 1 })
  await expect(world, 204, 'POST', 'secret/destroy/a', {
    versions: Array.from({ length: MANY - 10 }, (_, at) => at + 1),
  })
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 2 })
  await write(world, 'a', { x: 'last' })
  const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
  assert.deepEqual(
    [Object.keys(data['versions'] as object), data['oldest_version']],
    [[String(MANY), String(MANY + 1)], MANY],
  )
})

test('members and secrets may have the names __proto__, constructor, or an empty name', async (t) => {
  const world = await openKv(t)
  const text = '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"":"empty","a.b":1}'
  await expect(world, 200, 'POST', 'secret/data/__proto__', `{"data":${text}}`)
  const { text: answer } = await world.ask('GET', 'secret/data/__proto__')
  assert.ok(answer.includes(`"data":${text}`))
  await expect(world, 200, 'PATCH', 'secret/data/__proto__', '{"data":{"__proto__":{"more":2},"":null}}')
  const patched = (await world.ask('GET', 'secret/data/__proto__')).text
  assert.ok(patched.includes('"__proto__":{"polluted":1,"more":2}'), patched)
  const subkeys = (await world.ask('GET', 'secret/subkeys/__proto__')).text
  assert.ok(subkeys.includes('"__proto__":{"polluted":null,"more":null}'), subkeys)
  const custom = '{"custom_metadata":{"__proto__":"text"}}'
  await expect(world, 204, 'POST', 'secret/metadata/__proto__', custom)
  await expect(world, 204, 'PATCH', 'secret/metadata/__proto__', '{"custom_metadata":{"constructor":"text"}}')
  const metadata = (await world.ask('GET', 'secret/metadata/__proto__')).text
  assert.ok(metadata.includes('"custom_metadata":{"__proto__":"text","constructor":"text"}'), metadata)
  assert.deepEqual((await expect(world, 200, 'LIST', 'secret/detailed-metadata')).data['keys'], ['__proto__'])
  assert.ok((await world.ask('LIST', 'secret/detailed-metadata')).text.includes('"key_info":{"__proto__":{'))
  assert.ok((await world.ask('GET', 'secret/export')).text.includes('"secrets":{"__proto__":{'))
  await expect(world, 200, 'GET', 'secret/diff/__proto__?values=true')
  assert.equal(Object.hasOwn(Object.prototype, 'polluted'), false)
})

test('data nested a thousand levels deep is refused or returned unchanged, also in a patch', async (t) => {
  const world = await openKv(t)
  await expect(world, 400, 'POST', 'secret/data/a', `{"data":${deep(5000)}}`)
  await expect(world, 200, 'POST', 'secret/data/a', `{"data":${deep(900)}}`)
  assert.ok((await world.ask('GET', 'secret/data/a')).text.includes(deep(900)))
  await expect(world, 200, 'GET', 'secret/subkeys/a')
  await expect(world, 200, 'PATCH', 'secret/data/a', `{"data":${deep(950)}}`)
  await expect(world, 200, 'GET', 'secret/diff/a?values=true')
})

test('names of all kinds are kept as they are', async (t) => {
  const world = await openKv(t)
  const names = [
    'a b',
    'p%41q',
    '100%',
    'ü',
    'u\u0308',
    '\u{1f600}',
    'a+b',
    'a?b#c',
    'a:b;c=d&e',
    "it's",
    '"q"',
    'a\\b',
    'Ａ',
    'data',
    'metadata/x',
    '~',
    'n'.repeat(300),
    'f/'.repeat(100) + 'x',
  ]
  for (const name of names) await write(world, encodeURIComponent(name).replaceAll('%2F', '/'), { name })
  for (const name of names) {
    const at = encodeURIComponent(name).replaceAll('%2F', '/')
    assert.deepEqual((await read(world, at)).data, { name })
    await expect(world, 200, 'GET', `secret/metadata/${at}`)
  }
  const scanned = (await expect(world, 200, 'SCAN', 'secret/metadata')).data['keys'] as string[]
  assert.deepEqual([...scanned].sort(), [...names].sort())
})

/** Ten thousand members below a name of 100,000 characters. */
const longNamed = (value: number) => ({
  ['n'.repeat(100_000)]: Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`m${at}`, value])),
})

test('a diff that exceeds the response limit is refused', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', longNamed(0))
  await write(world, 'a', longNamed(1))
  for (const query of ['', '?values=true']) {
    const { errors } = await expect(world, 400, 'GET', `secret/diff/a${query}`)
    assert.match(errors[0] ?? '', /^too many differences/)
  }
  await write(world, 'a', { ...longNamed(1), more: 1 })
  const { data: found } = await expect(world, 200, 'GET', 'secret/diff/a')
  assert.deepEqual(found['changes'], [{ key: '/more', change: 'added' }])
})

test('parsing long rows of one character takes linear time', async (t) => {
  const world = await openKv(t)
  const digits = { row: `${'1'.repeat(308)} `.repeat(10_000) }
  await write(world, 'a', digits)
  assert.deepEqual((await read(world, 'a')).data, digits)
  const slashes = `a${'/'.repeat(1 << 20)}b`
  await expect(world, 400, 'POST', 'sys/remount', { from: slashes, to: 'c' })
  await expect(world, 400, 'POST', 'sys/remount', { from: 'secret', to: slashes })
  for (const [path, body] of [
    ['secret/copy/a', { to: slashes }],
    ['secret/transaction', { operations: [{ op: 'put', path: slashes, data: {} }] }],
    ['secret/import', { secrets: { [slashes]: { data: {} } } }],
  ] as const) {
    // Slashes in a row are one.
    await expect(world, 200, 'POST', path, body)
    await expect(world, 204, 'DELETE', 'secret/metadata/a/b')
  }
})
