/**
 * A token holder tries other paths to forbidden data: an old version by its time or through a copy, metadata through a
 * search, a deleted version through a move, a value through the responses of an import. Each path is tested with a
 * policy that forbids exactly that, and with one that allows it.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CoreWorld } from '../helpers/core-world.ts'
import { expectStatus, openKv, tokenWith, writeSecret } from '../helpers/kv-world.ts'

const EVERY = ['create', 'read', 'update', 'patch', 'delete', 'list', 'scan']
const OLD = 'the-old-value'
const CUSTOM = 'only-in-metadata'

/** Rules for everything but what the given rules are about. */
function policy(rules: Readonly<Record<string, string>>): string {
  const all = { 'secret/*': '', ...rules }
  return Object.entries(all)
    .map(
      ([path, more]) =>
        `path "${path}" { ${more === '' || !/capabilities/.test(more) ? capabilities(EVERY) : ''} ${more} }`,
    )
    .join('\n')
}

function capabilities(names: readonly string[]): string {
  return `capabilities = ${JSON.stringify(names)}`
}

/** A secret of three versions a second apart, the second of them deleted; the times between them. */
async function history(world: CoreWorld, name: string) {
  await writeSecret(world, name, { a: OLD, old: 1 })
  world.nowMs += 10_000
  await writeSecret(world, name, { a: 'deleted' })
  world.nowMs += 10_000
  await writeSecret(world, name, { a: 'newest' })
  await expectStatus(world, 204, 'POST', `secret/delete/${name}`, { versions: [2] })
  await expectStatus(world, 204, 'POST', `secret/metadata/${name}`, { custom_metadata: { note: CUSTOM } })
  const first = new Date(world.nowMs - 15_000).toISOString()
  return { first, before: new Date(world.nowMs - 60_000).toISOString(), now: new Date(world.nowMs).toISOString() }
}

async function asked(world: CoreWorld, token: string, method: string, path: string, body?: unknown) {
  return await world.ask(method, path, body, { token })
}

/** What a caller with these rules gets; the answer must have nothing of what is forbidden. */
async function refused(world: CoreWorld, token: string, method: string, path: string, body?: unknown) {
  const { status, text } = await asked(world, token, method, path, body)
  assert.equal(status, 403, `${method} ${path}: ${text}`)
  assert.ok(!text.includes(OLD) && !text.includes(CUSTOM), text)
}

async function allowed(world: CoreWorld, token: string, method: string, path: string, body?: unknown) {
  const answer = await asked(world, token, method, path, body)
  assert.ok(answer.status === 200 || answer.status === 204, `${method} ${path}: ${answer.status} ${answer.text}`)
  return answer
}

test('an old version that may not be read is not revealed by its time, a diff, a copy or a move', async (t) => {
  const world = await openKv(t)
  const { before, first, now } = await history(world, 'app')
  const rules = [
    'denied_parameters = { version = [] }',
    'allowed_parameters = { at = [], data = [], from = [], to = [] }',
  ]
  for (const rule of rules) {
    const token = await tokenWith(world, policy({ 'secret/data/*': rule }))
    await refused(world, token, 'GET', 'secret/data/app?version=1')
    await refused(world, token, 'GET', `secret/data/app?at=${first}`)
    // Neither does the answer tell when the first version was made.
    await refused(world, token, 'GET', `secret/data/app?at=${before}`)
    await refused(world, token, 'GET', 'secret/diff/app?from=1&to=3')
    await refused(world, token, 'GET', 'secret/diff/app?from=1&to=3&values=true')
    await refused(world, token, 'POST', 'secret/copy/app', { to: 'other' })
    await refused(world, token, 'POST', 'secret/move/app', { to: 'other' })
    assert.equal((await world.ask('GET', 'secret/metadata/other')).status, 404)
    // The newest one is what a read without a version gives.
    assert.match((await allowed(world, token, 'GET', `secret/data/app?at=${now}`)).text, /newest/)
  }
})

test('rules about single versions apply to each path and each spelling of a number', async (t) => {
  const world = await openKv(t)
  const { first } = await history(world, 'app')
  const denied = await tokenWith(world, policy({ 'secret/data/*': 'denied_parameters = { version = ["1"] }' }))
  for (const spelling of ['1', '01', '001', '%2B1']) {
    const { status, text } = await asked(world, denied, 'GET', `secret/data/app?version=${spelling}`)
    assert.ok((status === 403 || status === 400) && !text.includes(OLD), `${spelling}: ${status} ${text}`)
  }
  await refused(world, denied, 'GET', `secret/data/app?at=${first}`)
  await refused(world, denied, 'GET', 'secret/diff/app?from=1&to=3')
  await refused(world, denied, 'POST', 'secret/copy/app', { to: 'other' })
  await allowed(world, denied, 'GET', 'secret/data/app?version=3')
  const subkeys = await tokenWith(world, policy({ 'secret/subkeys/*': 'denied_parameters = { version = ["1"] }' }))
  assert.equal((await asked(world, subkeys, 'GET', 'secret/subkeys/app?version=01')).status, 403)
  await allowed(world, subkeys, 'GET', 'secret/subkeys/app?version=3')
  const only = await tokenWith(
    world,
    policy({ 'secret/data/*': 'required_parameters = ["version"] allowed_parameters = { version = ["1"] }' }),
  )
  await allowed(world, only, 'GET', 'secret/data/app?version=1')
  await refused(world, only, 'GET', 'secret/data/app')
  await refused(world, only, 'GET', 'secret/diff/app?from=1&to=3')
  for (const path of ['secret/export?format=json', 'secret/search']) {
    const { text } = await asked(world, only, 'GET', path)
    assert.ok(!text.includes('newest') && !text.includes(OLD), text)
  }
})

test('diff and copy do not reveal whether a secret exists to a caller without rights to it', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  const token = await tokenWith(world, policy({ 'secret/data/*': 'capabilities = ["create"]' }))
  for (const name of ['app', 'missing']) {
    await refused(world, token, 'GET', `secret/diff/${name}?from=1&to=3`)
    await refused(world, token, 'GET', `secret/diff/${name}`)
    await refused(world, token, 'POST', `secret/copy/${name}`, { to: 'other' })
  }
})

test('a copy includes deleted versions only for a caller who may undelete them', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  for (const rules of [
    { 'secret/undelete/*': 'capabilities = ["deny"]' },
    { 'secret/undelete/*': 'denied_parameters = { versions = ["2"] }' },
    { 'secret/data/*': 'denied_parameters = { version = ["2"] }' },
  ]) {
    const token = await tokenWith(world, policy(rules))
    // A move would destroy the deleted version.
    await refused(world, token, 'POST', 'secret/move/app', { to: 'other' })
    const { body } = await allowed(world, token, 'POST', 'secret/copy/app', { to: 'other' })
    assert.match(String(body.warnings), /may not undelete.*: 2$/)
    // The holder of the token may undelete elsewhere: it brings nothing back.
    await world.ask('POST', 'secret/undelete/other', { versions: [2] })
    assert.equal((await world.ask('GET', 'secret/data/other?version=2')).status, 404)
    assert.match((await world.ask('GET', 'secret/data/other?version=1')).text, new RegExp(OLD))
    await expectStatus(world, 204, 'DELETE', 'secret/metadata/other')
  }
  const token = await tokenWith(world, policy({}))
  await allowed(world, token, 'POST', 'secret/move/app', { to: 'other' })
  await expectStatus(world, 204, 'POST', 'secret/undelete/other', { versions: [2] })
  assert.match((await world.ask('GET', 'secret/data/other?version=2')).text, /deleted/)
})

test('a copy does not reveal metadata that is denied or not granted', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  for (const read of ['"deny"', '"create", "update"']) {
    const rules = { 'secret/metadata/app': `capabilities = [${read}]` }
    const token = await tokenWith(world, policy(rules))
    await refused(world, token, 'POST', 'secret/copy/app', { to: 'other' })
    await refused(world, token, 'POST', 'secret/move/app', { to: 'other' })
    assert.equal((await world.ask('GET', 'secret/metadata/other')).status, 404)
  }
})

test('a move requires delete, and a diff to the newest version requires read on it', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  const keep = await tokenWith(world, policy({ 'secret/metadata/app': 'capabilities = ["read", "create", "update"]' }))
  await world.ask('POST', 'secret/destroy/app', { versions: [2] })
  await refused(world, keep, 'POST', 'secret/move/app', { to: 'other' })
  await allowed(world, keep, 'POST', 'secret/copy/app', { to: 'other' })
  const first = 'required_parameters = ["version"] allowed_parameters = { version = ["1"], from = [] }'
  const oldOnly = await tokenWith(world, policy({ 'secret/data/*': first }))
  await allowed(world, oldOnly, 'GET', 'secret/data/app?version=1')
  for (const query of ['from=1', 'from=1&values=true', 'from=1&to=0', 'from=1&to=3']) {
    const { status, text } = await asked(world, oldOnly, 'GET', `secret/diff/app?${query}`)
    assert.equal(status, 403, `${query}: ${text}`)
  }
})

test('a copy does not restore a deleted newest version', async (t) => {
  const world = await openKv(t)
  await writeSecret(world, 'app', { a: OLD })
  await expectStatus(world, 204, 'DELETE', 'secret/data/app')
  const token = await tokenWith(world, policy({ 'secret/undelete/app': 'capabilities = ["deny"]' }))
  await allowed(world, token, 'POST', 'secret/copy/app', { to: 'other' })
  await allowed(world, token, 'POST', 'secret/undelete/other', { versions: [1] })
  const { status, text } = await asked(world, token, 'GET', 'secret/data/other')
  assert.ok(status === 404 && !text.includes(OLD), text)
})

test('a copy writes no settings that its caller may not write', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  const rule = 'denied_parameters = { custom_metadata = [] }'
  const token = await tokenWith(world, policy({ 'secret/metadata/other': rule }))
  await refused(world, token, 'POST', 'secret/copy/app', { to: 'other' })
  await allowed(world, token, 'POST', 'secret/copy/app', { to: 'another' })
})

test('metadata that may not be read is neither shown nor searched', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  const token = await tokenWith(world, policy({ 'secret/metadata/*': 'capabilities = ["list"]' }))
  await refused(world, token, 'GET', 'secret/metadata/app')
  const all = await allowed(world, token, 'GET', 'secret/search?name=app')
  assert.ok(all.text.includes('"app"') && !all.text.includes(CUSTOM), all.text)
  const guessed = await allowed(world, token, 'GET', `secret/search?custom_metadata=note%3D${CUSTOM}`)
  assert.deepEqual(guessed.body.data['found'], [])
  const exported = await allowed(world, token, 'GET', 'secret/export?format=json')
  assert.ok(exported.text.includes('newest') && !exported.text.includes(CUSTOM), exported.text)
  assert.deepEqual(exported.body.warnings, ['secrets without custom metadata that this token may not read: 1'])
  await refused(world, token, 'POST', 'secret/copy/app', { to: 'other' })
  const reader = await tokenWith(world, policy({}))
  const found = await allowed(world, reader, 'GET', `secret/search?custom_metadata=note%3D${CUSTOM}`)
  assert.equal((found.body.data['found'] as unknown[]).length, 1)
})

test('an import reveals nothing about existing secrets to a caller who may only write', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  const token = await tokenWith(
    world,
    policy({
      'secret/data/*': 'capabilities = ["create", "update"]',
      'secret/metadata/*': 'capabilities = ["create", "update"]',
    }),
  )
  const guess = async (a: string, note: string, dryRun: boolean) => {
    const secrets = { app: { data: { a }, custom_metadata: { note } } }
    const { body } = await allowed(world, token, 'POST', 'secret/import', { secrets, dry_run: dryRun })
    return body.data['secrets']
  }
  const wrong = await guess('wrong', 'wrong', true)
  assert.deepEqual(await guess('newest', CUSTOM, true), wrong, 'a right guess must look like a wrong one')
  assert.deepEqual(await guess('newest', CUSTOM, false), wrong)
  const reader = await tokenWith(world, policy({}))
  const { body } = await allowed(world, reader, 'POST', 'secret/import', {
    secrets: { app: { data: { a: 'newest' } } },
    dry_run: true,
  })
  assert.equal(body.data['unchanged'], 1)
})

test('operations of a transaction are authorized with their own parameters', async (t) => {
  const world = await openKv(t)
  await history(world, 'app')
  const required = await tokenWith(world, policy({ 'secret/data/*': 'required_parameters = ["options"]' }))
  const put = { op: 'put', path: 'app', data: { a: 'over' } }
  await refused(world, required, 'POST', 'secret/transaction', { operations: [put] })
  await allowed(world, required, 'POST', 'secret/transaction', { operations: [{ ...put, cas: 3 }] })
  const versions = await tokenWith(world, policy({ 'secret/undelete/*': 'denied_parameters = { versions = ["2"] }' }))
  const undelete = { op: 'undelete', path: 'app', versions: ['2'] }
  await refused(world, versions, 'POST', 'secret/transaction', { operations: [undelete] })
})

test('a watch reports settings only to a caller who may read metadata', async (t) => {
  const world = await openKv(t)
  const { body } = await world.ask('GET', 'secret/watch/')
  const cursor = String(body.data['cursor'])
  await history(world, 'app')
  const changes = async (rules: Readonly<Record<string, string>>) => {
    const token = await tokenWith(world, policy(rules))
    const answer = await allowed(world, token, 'GET', `secret/watch/?cursor=${cursor}&wait=0`)
    return (answer.body.data['events'] as { change: string }[]).map(({ change }) => change)
  }
  const deny = 'capabilities = ["deny"]'
  assert.deepEqual(await changes({}), ['write', 'write', 'write', 'delete', 'metadata'])
  assert.deepEqual(await changes({ 'secret/metadata/*': deny }), ['write', 'write', 'write', 'delete'])
  assert.deepEqual(await changes({ 'secret/metadata/*': deny, 'secret/data/*': deny }), [])
})

test('names that may not be listed are in no list, scan, search, export or watch', async (t) => {
  const world = await openKv(t)
  const { body } = await world.ask('GET', 'secret/watch/')
  await writeSecret(world, 'open/one', { a: 1 })
  await writeSecret(world, 'hidden-name/two', { a: 1 })
  await expectStatus(world, 204, 'POST', 'secret/config', { list_filter: true })
  const deny = 'capabilities = ["deny"]'
  const token = await tokenWith(
    world,
    policy({ 'secret/data/hidden-name/*': deny, 'secret/metadata/hidden-name/*': deny }),
  )
  const ways = [
    ['LIST', 'secret/metadata'],
    ['SCAN', 'secret/metadata'],
    ['LIST', 'secret/detailed-metadata'],
    ['SCAN', 'secret/detailed-metadata'],
    ['GET', 'secret/search'],
    ['GET', 'secret/search?name=hidden'],
    ['GET', 'secret/export'],
    ['GET', 'secret/export?limit=1'],
    ['GET', `secret/watch/?cursor=${String(body.data['cursor'])}&wait=0`],
  ] as const
  for (const [method, path] of ways) {
    const { status, text } = await asked(world, token, method, path)
    assert.ok(status === 200 || status === 404, `${method} ${path}: ${status} ${text}`)
    assert.ok(!text.includes('hidden-name'), `${method} ${path}: ${text}`)
  }
  const check = { op: 'check', path: 'hidden-name/two', cas: 1 }
  await refused(world, token, 'POST', 'secret/transaction', { operations: [check] })
})
