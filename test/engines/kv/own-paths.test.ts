/** Paths that Vault does not have: transactions, copies, differences, search, trees; each with its policies. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CoreWorld } from '../../helpers/core-world.ts'
import {
  expectStatus as expect,
  openKv,
  readSecret as read,
  tokenWith,
  writeSecret as write,
} from '../../helpers/kv-world.ts'

const transact = (world: CoreWorld, status: number, operations: unknown) =>
  expect(world, status, 'POST', 'secret/transaction', { operations })

test('a transaction changes all of its secrets', async (t) => {
  const world = await openKv(t)
  await write(world, 'old', { x: 1 })
  await write(world, 'patched', { keep: 1 })
  for (const x of [1, 2]) await write(world, 'versions', { x })
  const { data } = await transact(world, 200, [
    { op: 'put', path: 'new/a', data: { x: 1 }, cas: 0 },
    { op: 'put', path: 'new/a', data: { x: 2 }, cas: 1 },
    { op: 'patch', path: 'patched', data: { more: 2 }, cas: 1 },
    { op: 'check', path: 'versions', cas: 2 },
    { op: 'destroy', path: 'versions', versions: [1] },
    { op: 'delete', path: 'versions' },
    { op: 'remove', path: 'old' },
  ])
  const results = data['results'] as { path: string; version?: number }[]
  assert.deepEqual(
    results.map((each) => [each.path, each.version]),
    [
      ['new/a', 1],
      ['new/a', 2],
      ['patched', 2],
      ['versions', undefined],
      ['versions', undefined],
      ['versions', undefined],
      ['old', undefined],
    ],
  )
  assert.deepEqual((await read(world, 'new/a')).data, { x: 2 })
  assert.deepEqual((await read(world, 'patched')).data, { keep: 1, more: 2 })
  assert.equal((await read(world, 'versions')).status, 404)
  assert.equal((await read(world, 'versions', '?version=1')).metadata?.['destroyed'], true)
  await expect(world, 404, 'GET', 'secret/metadata/old')
})

test('a transaction with a failing operation changes nothing and names the operation', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  for (const [bad, text] of [
    [{ op: 'put', path: 'a', data: {}, cas: 0 }, /^operation 2: check-and-set parameter did not match/],
    [{ op: 'check', path: 'a', cas: 7 }, /^operation 2: check-and-set/],
    [{ op: 'check', path: 'a' }, /a check needs "cas"/],
    [{ op: 'put', path: 'a' }, /no data provided/],
    [{ op: 'put', path: 'a', data: [] }, /"data" must be an object/],
    [{ op: 'put', path: '', data: {} }, /must name a secret/],
    [{ op: 'put', path: 'f/', data: {} }, /must name a secret/],
    [{ op: 'put', path: '../sys', data: {} }, /relative paths/],
    [{ op: 'put', path: 'a\u0000b', data: {} }, /are not printable/],
    [{ op: 'put', path: 'n'.repeat(4097), data: {} }, /4096 bytes/],
    [{ op: 'put', path: 7, data: {} }, /name of a secret/],
    [{ op: 'drop', path: 'a' }, /"op" must be one of/],
    [{ op: 'destroy', path: 'a' }, /"versions" must be/],
    [{ op: 'destroy', path: 'a', versions: ['x'] }, /"versions" must be/],
    ['text', /must be an object/],
  ] as const) {
    const { errors } = await transact(world, 400, [{ op: 'put', path: 'first', data: {} }, bad])
    assert.match(errors[0] ?? '', text)
  }
  await transact(world, 404, [
    { op: 'put', path: 'first', data: {} },
    { op: 'patch', path: 'none', data: {} },
  ])
  for (const operations of [undefined, [], {}, 'x', Array.from({ length: 501 }, () => ({}))])
    await transact(world, 400, operations)
  await expect(world, 404, 'GET', 'secret/metadata/first')
  assert.equal((await read(world, 'a')).metadata?.['version'], 1)
})

test('each operation of a transaction requires the policy of the single request', async (t) => {
  const world = await openKv(t)
  for (const name of ['mine', 'theirs']) await write(world, name, { x: 1 })
  const token = await tokenWith(
    world,
    `path "secret/transaction" { capabilities = ["update"] }
     path "secret/data/mine" { capabilities = ["update", "read", "patch"] }
     path "secret/data/new/*" { capabilities = ["create"] }
     path "secret/data/limited" {
       capabilities = ["create", "update"]
       denied_parameters = { "options" = [] }
     }`,
  )
  const status = async (...operations: object[]) =>
    (await world.ask('POST', 'secret/transaction', { operations }, { token })).status
  assert.equal(await status({ op: 'put', path: 'mine', data: {} }, { op: 'put', path: 'new/a', data: {} }), 200)
  for (const denied of [
    { op: 'put', path: 'theirs', data: {} },
    { op: 'put', path: 'new/a', data: {} },
    { op: 'check', path: 'theirs', cas: 1 },
    { op: 'delete', path: 'mine' },
    { op: 'delete', path: 'mine', versions: [1] },
    { op: 'destroy', path: 'mine', versions: [1] },
    { op: 'undelete', path: 'mine', versions: [1] },
    { op: 'remove', path: 'mine' },
    { op: 'patch', path: 'theirs', data: {} },
    { op: 'patch', path: 'none', data: {} },
    { op: 'put', path: 'limited', data: {}, cas: 0 },
  ]) {
    assert.equal(await status({ op: 'patch', path: 'mine', data: { y: 1 } }, denied), 403, JSON.stringify(denied))
  }
  assert.equal((await read(world, 'mine')).metadata?.['version'], 2)
})

test('transactions with the same preconditions: one of 50 wins', async (t) => {
  const world = await openKv(t)
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, writer) =>
      world.ask('POST', 'secret/transaction', {
        operations: ['a', 'b'].map((path) => ({ op: 'put', path, data: { writer }, cas: 0 })),
      }),
    ),
  )
  assert.equal(answers.filter(({ status }) => status === 200).length, 1)
  assert.deepEqual((await read(world, 'a')).data, (await read(world, 'b')).data)
})

test('a secret is copied and moved with its history', async (t) => {
  const world = await openKv(t)
  for (const x of [1, 2, 3]) await write(world, 'from/a', { x })
  await expect(world, 204, 'POST', 'secret/metadata/from/a', { custom_metadata: { owner: 'me' }, max_versions: 7 })
  await expect(world, 204, 'POST', 'secret/delete/from/a', { versions: [2] })
  await expect(world, 204, 'POST', 'secret/destroy/from/a', { versions: [1] })
  const { data: before } = await expect(world, 200, 'GET', 'secret/metadata/from/a')
  await expect(world, 200, 'POST', 'secret/copy/from/a', { to: 'to/b' })
  await expect(world, 400, 'POST', 'secret/copy/from/a', { to: 'to/b' })
  await expect(world, 400, 'POST', 'secret/copy/from/a', {})
  await expect(world, 404, 'POST', 'secret/copy/none', { to: 'x' })
  for (const name of ['from/a', 'to/b']) {
    const { data } = await expect(world, 200, 'GET', `secret/metadata/${name}`)
    assert.deepEqual({ ...data, last_updated_by: 0 }, { ...before, last_updated_by: 0 })
    assert.deepEqual((await read(world, name)).data, { x: 3 })
    await expect(world, 404, 'GET', `secret/data/${name}?version=1`)
  }
  await expect(world, 200, 'POST', 'secret/move/from/a', { to: 'moved' })
  await expect(world, 404, 'GET', 'secret/metadata/from/a')
  await expect(world, 404, 'LIST', 'secret/metadata/from')
  await expect(world, 204, 'POST', 'secret/undelete/moved', { versions: [2] })
  assert.deepEqual((await read(world, 'moved', '?version=2')).data, { x: 2 })
  const view = world.core.open.mounts.get('secret/')?.storage
  assert.equal(view?.list('k/').filter((each) => each.endsWith('/')).length, 2, 'what was moved left no data behind')
})

test('a copy requires rights to read the source and write the target, a move also to remove', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  const grants = (paths: Record<string, string>) =>
    tokenWith(
      world,
      Object.entries(paths)
        .map(([at, can]) => `path "secret/${at}" { capabilities = ${can} }`)
        .join('\n'),
    )
  const all = {
    'copy/*': '["update"]',
    'move/*': '["update"]',
    'data/a': '["read"]',
    'metadata/a': '["read"]',
    'data/b': '["create"]',
    'metadata/b': '["create"]',
  }
  for (const missing of ['data/a', 'metadata/a', 'data/b', 'metadata/b']) {
    const token = await grants({ ...all, [missing]: '["deny"]' })
    assert.equal((await world.ask('POST', 'secret/copy/a', { to: 'b' }, { token })).status, 403, missing)
  }
  const token = await grants(all)
  assert.equal((await world.ask('POST', 'secret/move/a', { to: 'b' }, { token })).status, 403)
  assert.equal((await world.ask('POST', 'secret/copy/hidden', { to: 'b' }, { token })).status, 403)
  assert.equal((await world.ask('POST', 'secret/copy/a', { to: 'b' }, { token })).status, 200)
})

test('a diff shows members, and values on request, to a caller who may read both versions', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { same: 1, change: 'one', gone: true, deep: { x: [1], 'a/b': 1 } })
  await write(world, 'a', { same: 1, change: 'two', added: null, deep: { x: [2], 'a/b': 1 } })
  const first = await expect(world, 200, 'GET', 'secret/diff/a?to=1')
  assert.deepEqual([first.data['from'], (first.data['changes'] as unknown[]).length], [0, 4])
  const { data } = await expect(world, 200, 'GET', 'secret/diff/a')
  assert.deepEqual(data, {
    from: 1,
    to: 2,
    changes: [
      { key: '/change', change: 'changed' },
      { key: '/gone', change: 'removed' },
      { key: '/deep/x', change: 'changed' },
      { key: '/added', change: 'added' },
    ],
  })
  const valued = await expect(world, 200, 'GET', 'secret/diff/a?from=2&to=1&values=true')
  assert.deepEqual((valued.data['changes'] as unknown[])[0], {
    key: '/change',
    change: 'changed',
    before: 'two',
    after: 'one',
  })
  const token = await tokenWith(world, 'path "secret/diff/*" { capabilities = ["read"] }')
  for (const query of ['', '?values=true']) {
    assert.equal((await world.ask('GET', `secret/diff/a${query}`, undefined, { token })).status, 403)
  }
  await expect(world, 404, 'GET', 'secret/diff/none')
  await expect(world, 404, 'GET', 'secret/diff/a?from=9')
  await expect(world, 204, 'POST', 'secret/delete/a', { versions: [1] })
  await expect(world, 404, 'GET', 'secret/diff/a')
})

test('a read as of a time returns the newest version of that time, unless it was deleted since', async (t) => {
  const world = await openKv(t)
  const times: string[] = []
  for (const x of [1, 2, 3]) {
    await write(world, 'a', { x })
    times.push(new Date(world.core.now()).toISOString())
    world.nowMs += 10_000
  }
  for (const [at, x] of [
    [times[0], 1],
    [times[1], 2],
    [times[2], 3],
    [String(Math.floor(world.nowMs / 1000)), 3],
  ] as const) {
    assert.deepEqual((await read(world, 'a', `?at=${encodeURIComponent(at ?? '')}`)).data, { x })
  }
  const before = new Date(Date.parse(times[0] ?? '') - 1).toISOString()
  assert.equal((await read(world, 'a', `?at=${before}`)).status, 404)
  for (const at of ['yesterday', '2026', '2026-01-01', '-1', '2026-13-01T00:00:00Z']) {
    await expect(world, 400, 'GET', `secret/data/a?at=${at}`)
  }
  await expect(world, 400, 'GET', `secret/data/a?at=${times[0]}&version=2`)
  await expect(world, 204, 'POST', 'secret/delete/a', { versions: [1] })
  assert.equal((await read(world, 'a', `?at=${times[0]}`)).status, 404)
})

test('search finds names and custom metadata that the caller may read, in pages', async (t) => {
  const world = await openKv(t)
  for (const name of ['app/Db-main', 'app/db-copy', 'app/web', 'other/db']) await write(world, name, {})
  await expect(world, 204, 'POST', 'secret/metadata/app/web', { custom_metadata: { owner: 'ops', tier: '1' } })
  await expect(world, 204, 'POST', 'secret/metadata/other/db', { custom_metadata: { owner: 'dev' } })
  const found = async (query: string, token?: string) => {
    const { body } = await world.ask('GET', `secret/search${query}`, undefined, { token })
    return (body.data['found'] as { path: string }[]).map(({ path }) => path)
  }
  assert.deepEqual(await found('?name=DB'), ['app/Db-main', 'app/db-copy', 'other/db'])
  assert.deepEqual(await found('/app?name=db'), ['app/Db-main', 'app/db-copy'])
  assert.deepEqual(await found('?name=db*'), ['app/Db-main', 'app/db-copy', 'other/db'])
  assert.deepEqual(await found('?name=*-m*n'), ['app/Db-main'])
  assert.deepEqual(await found('?name=app/*b'), ['app/web'])
  assert.deepEqual(await found('?name=d*b*b'), [])
  assert.deepEqual(await found('?custom_metadata=owner=o*s'), ['app/web'])
  assert.deepEqual(await found('?custom_metadata=owner=ops'), ['app/web'])
  assert.deepEqual(await found('?custom_metadata=owner=*'), ['app/web', 'other/db'])
  assert.deepEqual(await found('?custom_metadata=owner=ops&custom_metadata=tier=2'), [])
  await expect(world, 400, 'GET', 'secret/search?custom_metadata=owner')
  const token = await tokenWith(
    world,
    `path "secret/search/*" { capabilities = ["read"] }
     path "secret/search" { capabilities = ["read"] }
     path "secret/data/app/*" { capabilities = ["read"] }`,
  )
  assert.deepEqual(await found('?name=db', token), ['app/Db-main', 'app/db-copy'])
  const pages: string[] = []
  for (let after: string | null = ''; after !== null; ) {
    const query: string = encodeURIComponent(after)
    const { data } = await expect(world, 200, 'GET', `secret/search?limit=1&after=${query}`)
    pages.push(...(data['found'] as { path: string }[]).map(({ path }) => path))
    after = data['next'] as string | null
  }
  assert.deepEqual(pages, ['app/Db-main', 'app/db-copy', 'app/web', 'other/db'])
})

test('a tree is exported and imported, and a second import changes nothing', async (t) => {
  const world = await openKv(t)
  for (const name of ['a', 'f/b', 'f/g/c']) await write(world, `from/${name}`, { name, deep: { list: [1] } })
  await expect(world, 204, 'POST', 'secret/metadata/from/a', { custom_metadata: { owner: 'me' } })
  const { data: tree } = await expect(world, 200, 'GET', 'secret/export/from')
  assert.deepEqual(Object.keys(tree['secrets'] as object), ['a', 'f/b', 'f/g/c'])
  const dry = await expect(world, 200, 'POST', 'secret/import/to', { ...tree, dry_run: true })
  assert.deepEqual([dry.data['created'], dry.data['unchanged']], [3, 0])
  await expect(world, 404, 'LIST', 'secret/metadata/to')
  await expect(world, 200, 'POST', 'secret/import/to', tree)
  assert.deepEqual((await expect(world, 200, 'GET', 'secret/export/to')).data, tree)
  const again = await expect(world, 200, 'POST', 'secret/import/to', tree)
  assert.deepEqual([again.data['created'], again.data['updated'], again.data['unchanged']], [0, 0, 3])
  assert.equal((await read(world, 'to/a')).metadata?.['version'], 1)
  for (const [body, text] of [
    [{ secrets: { x: { data: 1 } } }, /secret "to\/x"/],
    [{ secrets: { '../x': { data: {} } } }, /relative/],
    [{ secrets: [] }, /must be an object/],
    [
      { secrets: Object.fromEntries(Array.from({ length: 1001 }, (_, at) => [`k${at}`, { data: {} }])) },
      /split the import/,
    ],
    [{ format: 'yaml', secrets: {} }, /json or env/],
    [{ secrets: { ok: { data: {} }, bad: { data: {}, custom_metadata: { a: '' } } } }, /custom_metadata/],
  ] as const) {
    assert.match((await expect(world, 400, 'POST', 'secret/import/to', body)).errors[0] ?? '', text)
  }
  await expect(world, 404, 'GET', 'secret/metadata/to/ok')
})

test('an export omits unreadable secrets with a warning, and a partly forbidden import is refused', async (t) => {
  const world = await openKv(t)
  for (const name of ['a', 'b']) await write(world, name, { name })
  const token = await tokenWith(
    world,
    `path "secret/export" { capabilities = ["read"] }
     path "secret/import" { capabilities = ["update"] }
     path "secret/data/a" { capabilities = ["read", "update"] }`,
  )
  const { body } = await world.ask('GET', 'secret/export', undefined, { token })
  assert.deepEqual(Object.keys(body.data['secrets'] as object), ['a'])
  assert.deepEqual(body.warnings, [
    'secrets omitted that this token may not read: 1',
    'secrets without custom metadata that this token may not read: 1',
  ])
  const secrets = { a: { data: { x: 1 } }, b: { data: { x: 1 } } }
  assert.equal((await world.ask('POST', 'secret/import', { secrets }, { token })).status, 403)
  assert.deepEqual((await read(world, 'a')).data, { name: 'a' })
})

test('a secret is exported to a .env file and imported from it', async (t) => {
  const world = await openKv(t)
  const data = { PLAIN: 'a.b/c', EMPTY: '', SPACE: 'a b', QUOTE: `it's "so" $HOME`, LINES: 'one\ntwo\\n', HASH: '#no' }
  await write(world, 'a', data)
  const { data: exported } = await expect(world, 200, 'GET', 'secret/export/a?format=env')
  await expect(world, 200, 'POST', 'secret/import/b', exported)
  assert.deepEqual((await read(world, 'b')).data, data)
  const text = `# comment\nexport ONE=1\n\nTWO = two # comment\nTHREE='3 # 3'\nFOUR="a\\nb"\r\n`
  await expect(world, 200, 'POST', 'secret/import/c', { format: 'env', text })
  assert.deepEqual((await read(world, 'c')).data, { ONE: '1', TWO: 'two', THREE: '3 # 3', FOUR: 'a\nb' })
  for (const bad of ['no line', '1A=x', `A='open`, '=x']) {
    const { errors } = await expect(world, 400, 'POST', 'secret/import/c', { format: 'env', text: `OK=1\n${bad}` })
    assert.deepEqual(errors, ['line 2 is not NAME=value'])
  }
  await write(world, 'odd', { 'a-b': 1 })
  await expect(world, 400, 'GET', 'secret/export/odd?format=env')
})

test('a copy has at most 1,000 versions and omits destroyed ones', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/config', { max_versions: 2000 })
  const operations = Array.from({ length: 500 }, (_, x) => ({ op: 'put', path: 'a', data: { x } }))
  for (const part of [operations, operations, operations.slice(0, 1)]) {
    await expect(world, 200, 'POST', 'secret/transaction', { operations: part })
  }
  for (const what of ['copy', 'move']) {
    const { errors } = await expect(world, 400, 'POST', `secret/${what}/a`, { to: 'b' })
    assert.match(String(errors[0]), /the secret has 1001 versions, at most 1000 can be copied: destroy/)
  }
  await expect(world, 404, 'GET', 'secret/metadata/b')
  await expect(world, 204, 'POST', 'secret/destroy/a', { versions: [7] })
  await expect(world, 200, 'POST', 'secret/move/a', { to: 'b' })
  await expect(world, 404, 'GET', 'secret/data/a')
  await expect(world, 404, 'GET', 'secret/data/b?version=7')
  for (const [version, x] of [
    [1, 0],
    [8, 7],
    [1000, 499],
    [1001, 0],
  ]) {
    const { data } = await expect(world, 200, 'GET', `secret/data/b?version=${version}`)
    assert.deepEqual(data['data'], { x })
  }
})
