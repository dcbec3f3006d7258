/** The smallest engine, through the whole of the core. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'

test('stores the data of a token as written until it is removed', async (t) => {
  const world = await CoreWorld.open(t)
  assert.equal((await world.ask('POST', 'cubbyhole/a/b', '{"n":12345678901234567890,"s":"<x>"}')).status, 204)
  assert.equal((await world.ask('PUT', 'cubbyhole/c', { x: 1 })).status, 204)
  const read = await world.ask('GET', 'cubbyhole/a/b')
  assert.equal(read.status, 200)
  assert.match(read.text, /"data":\{"n":12345678901234567890,"s":"\\u003cx\\u003e"\}/)
  assert.deepEqual(Object.keys(read.body), [
    'request_id',
    'lease_id',
    'renewable',
    'lease_duration',
    'data',
    'wrap_info',
    'warnings',
    'auth',
  ])
  assert.deepEqual((await world.ask('LIST', 'cubbyhole')).body.data, { keys: ['a/', 'c'] })
  assert.deepEqual((await world.ask('GET', 'cubbyhole/a?list=true')).body.data, { keys: ['b'] })
  assert.equal((await world.ask('DELETE', 'cubbyhole/a/b')).status, 204)
  assert.deepEqual((await world.ask('GET', 'cubbyhole/a/b')).body, { errors: [] })
  assert.equal((await world.ask('LIST', 'cubbyhole/a')).status, 404)
})

test('refuses invalid requests and changes nothing', async (t) => {
  const world = await CoreWorld.open(t)
  const refused = async (method: string, path: string, body?: unknown) => {
    const { body: answer, status } = await world.ask(method, path, body)
    return [status, ...answer.errors]
  }
  assert.deepEqual(await refused('POST', 'cubbyhole/a', {}), [400, 'missing data fields'])
  assert.deepEqual(await refused('POST', 'cubbyhole/a/', { x: 1 }), [400, "cannot write to a path ending in '/'"])
  assert.deepEqual(await refused('POST', 'cubbyhole', { x: 1 }), [400, 'missing path'])
  assert.deepEqual(await refused('PATCH', 'cubbyhole/a', { x: 1 }), [
    405,
    '1 error occurred:\n\t* unsupported operation\n\n',
  ])
  assert.equal((await world.ask('LIST', 'cubbyhole')).status, 404)
  const long = 'ü'.repeat(1537)
  assert.deepEqual(await refused('POST', `cubbyhole/${long}`, { x: 1 }), [400, 'a name can have at most 3072 bytes'])
  assert.equal((await world.ask('GET', `cubbyhole/${long.repeat(3)}`)).status, 404)
  assert.equal((await world.ask('DELETE', `cubbyhole/${long.repeat(3)}`)).status, 204)
  await world.ask('POST', 'cubbyhole/folder/a', { x: 1 })
  assert.equal((await world.ask('DELETE', 'cubbyhole/folder/')).status, 204)
  assert.deepEqual((await world.ask('GET', 'cubbyhole/folder/a')).body.data, { x: 1 })
})

test('denies other tokens and keeps the data while sealed', async (t) => {
  const world = await CoreWorld.open(t)
  await world.ask('POST', 'cubbyhole/mine', { x: 'secret' })
  assert.equal((await world.ask('GET', 'cubbyhole/mine', undefined, { token: null })).status, 403)
  assert.equal((await world.ask('GET', 'cubbyhole/mine', undefined, { token: 's.unknown' })).status, 403)
  await world.core.seal()
  assert.deepEqual((await world.ask('GET', 'cubbyhole/mine')).body, { errors: ['Vault is sealed'] })
  world.unseal()
  assert.deepEqual((await world.ask('GET', 'cubbyhole/mine')).body.data, { x: 'secret' })
})

test('does not read a large body without a token', async (t) => {
  const world = await CoreWorld.open(t)
  const large = JSON.stringify({ key: 'x'.repeat(2 << 20) })
  assert.equal((await world.ask('PUT', 'sys/unseal', large, { token: null })).status, 413)
  assert.equal((await world.ask('POST', 'cubbyhole/large', large, { token: null })).status, 403)
  assert.equal((await world.ask('POST', 'cubbyhole/large', large)).status, 204)
})
