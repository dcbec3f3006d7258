/** What the `kv` commands have beyond those of the field, against a real core. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { faultIn } from '../../../../src/cli/commands/kv/json-file.ts'
import { workDirectory } from '../../../helpers/agent-process.ts'
import { kvCommands } from '../../../helpers/kv-commands.ts'
import { recordingCore, runAt } from '../../recording-core.ts'
import { expectStatus, readSecret, tokenWith, writeSecret } from '../../../helpers/kv-world.ts'
import { OUTPOST, ROOT, start } from '../../outpost-process.ts'

const HAS_PYTHON = spawnSync('python3', ['-c', 'import pty']).status === 0

test('a diff shows keys, and values only where they are asked for', async (t) => {
  const { run, world } = await kvCommands(t)
  await writeSecret(world, 'app/db', { user: 'a', deep: { x: 1 }, old: 'gone' })
  await writeSecret(world, 'app/db', { user: 'hunter2', deep: { x: 1, y: [2] } })
  const keys = await run('diff -from=1 -to=2 secret/app/db')
  assert.deepEqual(keys.stdout.split('\n'), [
    'Change     Key',
    '------     ---',
    'changed    user',
    'added      deep/y',
    'removed    old',
    '',
  ])
  assert.ok(!(await run('diff -mount=secret app/db')).stdout.includes('hunter2'))
  const values = await run('diff -values secret/app/db')
  assert.match(values.stdout, /^changed +user +a +hunter2$/m)
  assert.match(values.stdout, /^added +deep\/y +\[2\]$/m)
  assert.match((await run('diff -format=json secret/app/db')).stdout, /"change": "removed"/)
  assert.equal((await run('diff -field=to secret/app/db')).stdout, '2')
  assert.deepEqual((await run('diff -from=2 -to=2 secret/app/db')).stderr, 'versions 2 and 2 are identical\n')
  assert.match((await run('diff -from=7 secret/app/db')).stderr, /no such version of "app\/db" \(HTTP 404\)/)
})

test('secrets are copied, moved and found, and changed together or not at all', async (t) => {
  const { directory, run, world } = await kvCommands(t)
  await writeSecret(world, 'app/db', { x: 1 })
  await writeSecret(world, 'app/db', { x: 2 })
  await expectStatus(world, 204, 'POST', 'secret/metadata/app/db', { custom_metadata: { owner: 'ops', env: 'prod' } })
  assert.match((await run('copy secret/app/db secret/team/db')).stdout, /^path +team\/db$/m)
  assert.match((await run('move -mount=secret app/db other/db2')).stdout, /^versions +2$/m)
  assert.deepEqual((await readSecret(world, 'other/db2', '?version=1')).data, { x: 1 })
  world.nowMs += 600_000
  assert.match((await run('get -at=0s secret/other/db2')).stdout, /^x +2$/m)
  assert.equal((await run('get -at=2000-01-31 secret/other/db2')).code, 1)
  assert.equal((await run('get -at=yesterday secret/other/db2')).code, 2)
  assert.equal((await readSecret(world, 'app/db')).status, 404)
  assert.equal((await run('copy secret/team/db elsewhere/db')).code, 2)
  assert.match(
    (await run('copy secret/team/db secret/other/db2')).stderr,
    /the destination \("to"\) already exists: remove it first/,
  )

  const found = await run('search -custom-metadata=owner=* -custom-metadata=env=prod -name=DB secret')
  assert.match(found.stdout, /^secret\/other\/db2 +2 +owner=ops env=prod$/m)
  assert.match(found.stdout, /^secret\/team\/db +2 +owner=ops env=prod$/m)
  assert.equal((await run('search -name=db* secret')).stdout, found.stdout)
  assert.equal((await run('search -limit=1 secret')).stdout.split('\n').length, 4)
  assert.deepEqual((await run('search -custom-metadata=env=test secret')).stdout, '')
  assert.deepEqual(JSON.parse((await run('search -format=json -name=zzz secret')).stdout), [])

  const operations = [
    { op: 'put', path: 'a', data: { big: 1 } },
    { op: 'check', path: 'team/db', cas: 2 },
    { op: 'remove', path: 'other/db2' },
  ]
  const file = join(directory, 'operations.json')
  writeFileSync(file, JSON.stringify({ operations }))
  const done = await run(`transaction @${file}`)
  assert.deepEqual(
    [done.code, done.stdout.split('\n').slice(2)],
    [0, ['put          secret/a            1', 'check        secret/team/db', 'remove       secret/other/db2', '']],
  )
  const refused = await run('transaction -mount=secret -', { input: JSON.stringify(operations) })
  assert.deepEqual([refused.code, (await readSecret(world, 'a')).metadata?.['version']], [0, 2])
  operations[1] = { op: 'check', path: 'team/db', cas: 9 }
  const none = await run('transaction -', { input: JSON.stringify(operations) })
  assert.match(none.stderr, /operation 2: check-and-set parameter did not match/)
  assert.equal((await readSecret(world, 'a')).metadata?.['version'], 2)
  assert.match(
    (await run('transaction -', { input: '[{"op" "put"}]' })).stderr,
    /standard input is not valid JSON: error at line 1, column 8$/m,
  )
  assert.equal((await run('transaction operations.json')).code, 2)
})

test('a tree is exported and imported in several requests', async (t) => {
  const { begin, directory, run, world } = await kvCommands(t)
  const secrets = Object.fromEntries(
    Array.from({ length: 1300 }, (_, at) => [`d${at % 7}/k${at}`, { data: { at, text: `value ${at}` } }]),
  )
  secrets['d0/k0'] = { data: { at: 0, text: 'ü\n"' }, custom_metadata: { owner: 'me' } } as never
  const given = join(directory, 'given.json')
  writeFileSync(given, JSON.stringify({ secrets }))
  const dry = await run(`import -dry-run secret/from ${given}`)
  assert.match(dry.stdout, /^created +secret\/from\/d0\/k0$/m)
  assert.match(dry.stdout, /^Would import to: secret\/from \(created 1300, updated 0, /m)
  assert.equal((await run(`import secret/from @${given}`)).code, 0)

  const file = join(directory, 'out.json')
  const exported = await run(`export -output=${file} secret/from`)
  assert.deepEqual([exported.code, exported.stdout], [0, ''])
  assert.match(exported.stderr, /^exported 1300 secrets \(\S+ \w+\) to /)
  assert.equal(statSync(file).mode & 0o777, 0o600)
  const written = JSON.parse(readFileSync(file, 'utf8')) as { secrets: typeof secrets }
  assert.deepEqual(Object.keys(written.secrets).sort(), Object.keys(secrets).sort())
  assert.deepEqual(written.secrets['d0/k0'], secrets['d0/k0'])
  assert.deepEqual(written.secrets['d1/k8']?.data, secrets['d1/k8']?.data)
  // Each in a process of its own, which writes to its standard output and reads its standard input.
  assert.equal((await begin('export secret/from').finished).stdout, readFileSync(file, 'utf8'))
  const back = await begin('import -mount=secret to -', { input: readFileSync(file, 'utf8') }).finished
  assert.equal(
    back.stdout,
    'Success! Imported to: secret/to (created 1300, updated 0, custom metadata only 0, unchanged 0)\n',
  )
  const again = await run(`import secret/to ${file}`)
  assert.match(again.stdout, /created 0, updated 0, custom metadata only 0, unchanged 1300/)
  assert.equal((await readSecret(world, 'to/d0/k0')).metadata?.['version'], 1)
})

test('a failed import prints the number of imported secrets, and can be continued', async (t) => {
  const { directory, run } = await kvCommands(t)
  const secrets: Record<string, object> = Object.fromEntries(
    Array.from({ length: 1200 }, (_, at) => [`k${at}`, { data: { at } }]),
  )
  secrets['k700'] = { data: {}, custom_metadata: { long: 'x'.repeat(513) } }
  const file = join(directory, 'tree.json')
  writeFileSync(file, JSON.stringify({ secrets }))
  const broken = await run(`import secret/to ${file}`)
  assert.deepEqual([broken.code, broken.stdout], [1, ''])
  assert.match(broken.stderr, /^outpost: 500 of 1200 secrets were imported \(last: "k499"\): .*custom_metadata/)
  const there = JSON.parse((await run('export secret/to')).stdout) as { secrets: object }
  assert.deepEqual(Object.keys(there.secrets).length, 500)
  secrets['k700'] = { data: {} }
  writeFileSync(file, JSON.stringify({ secrets }))
  assert.match((await run(`import secret/to ${file}`)).stdout, /created 700, updated 0, .* unchanged 500/)
})

test('a lost response of an import is reported as an unknown result', async (t) => {
  const directory = workDirectory(t)
  const file = join(directory, 'tree.json')
  writeFileSync(file, '{"secrets": {"a": {"data": {"id": 12345678901234567890}}}}')
  const core = await recordingCore(t)
  core.answers = {
    'GET sys/internal/ui/mounts/s/to': [200, { data: { path: 's/', type: 'kv', options: { version: '2' } } }],
    'POST s/import/to': [502, 'bad gateway'],
  }
  const { code, err, out } = await runAt(core, ['kv', 'import', 's/to', file])
  assert.deepEqual([code, out], [1, ''])
  assert.match(
    err,
    /^outpost: no secret was imported; the result of the request for secret "a" is unknown: bad gateway /,
  )
})

test('an interrupted export leaves no new file and does not change an existing one', async (t) => {
  const directory = workDirectory(t)
  const core = await recordingCore(t)
  core.answers = {
    'GET sys/internal/ui/mounts/s/to': [200, { data: { path: 's/', type: 'kv', options: { version: '2' } } }],
    'GET s/export/to': [200, { data: { secrets: { a: { data: {} } }, next: 'a' } }],
    'GET s/export/to?after=a': [500, 'broken'],
  }
  writeFileSync(join(directory, 'old.json'), 'old')
  for (const name of ['new.json', 'old.json']) {
    const { code, err } = await runAt(core, ['kv', 'export', `-output=${join(directory, name)}`, 's/to'])
    assert.deepEqual([code, err], [1, 'outpost: broken (HTTP 500)\n'])
  }
  assert.deepEqual(readdirSync(directory), ['old.json'])
  assert.equal(readFileSync(join(directory, 'old.json'), 'utf8'), 'old')
})

test('numbers stay as they were written', async (t) => {
  const { run } = await kvCommands(t)
  const input = '{"secrets": {"a": {"data": {"id": 12345678901234567890, "x": 1.0}}}}'
  assert.equal((await run('import secret/to -', { input })).code, 0)
  assert.match((await run('export secret/to')).stdout, /^"a":\{"data":\{"id":12345678901234567890,"x":1\.0\}/m)
})

test('an invalid file is an error with the line or secret, and nothing is written', async (t) => {
  const { directory, run, world } = await kvCommands(t)
  const file = join(directory, 'bad.json')
  for (const [text, message] of [
    [
      '{"secrets": {\n  "a": {"data": {"password": hunter2}}}}',
      /bad\.json is not valid JSON: error at line 2, column 30$/,
    ],
    ['{"secrets": {"a": {"data": {}}', /bad\.json is not valid JSON: unexpected end$/],
    ['', /bad\.json is not valid JSON: it is empty$/],
    ['[]', /bad\.json does not contain \{"secrets"/],
    ['{"secrets": {"ok": {"data": {}}, "f/b": {"data": "hunter2"}}}', /secret "f\/b": "data" must be an object$/],
    ['{"secrets": {"ok": {"data": {}}, "f/b": "hunter2"}}', /secret "f\/b": must be an object with "data"$/],
    [
      '{"secrets": {"b": {"data": {}, "metadata": {}}}}',
      /secret "b": unknown key "metadata", expected "data" and "custom_metadata"$/,
    ],
    [
      '{"secrets": {"b": {"data": {}, "custom_metadata": {"a": 1}}}}',
      /"b": "custom_metadata" must be an object of strings$/,
    ],
    ['{"secrets": {"ok": {"data": {}}, "../b": {"data": {}}}}', /no secret was imported: .*relative/],
  ] as const) {
    writeFileSync(file, text)
    const ran = await run(`import secret/to ${file}`)
    assert.deepEqual([ran.code, ran.stdout], [1, ''], text)
    assert.match(ran.stderr.trim(), message)
    assert.ok(!ran.stderr.includes('hunter2'))
  }
  assert.equal((await world.ask('LIST', 'secret/metadata')).status, 404)
  assert.match((await run(`import secret/to ${directory}/none`)).stderr, /cannot read .*ENOENT/)
  assert.equal((await run('import secret/to')).code, 2)
})

test('unreadable secrets are omitted with a warning, and a refused export leaves no file', async (t) => {
  const { directory, run, world } = await kvCommands(t)
  for (const name of ['a', 'b']) await writeSecret(world, name, { name })
  const token = await tokenWith(
    world,
    `path "secret/export" { capabilities = ["read"] }
     path "secret/data/a" { capabilities = ["read"] }`,
  )
  const file = join(directory, 'out.json')
  const part = await run(`export -output=${file} secret`, { token })
  assert.match(part.stderr, /^warning: omitted secrets that the token may not read: 1\nexported 1 secret \(/)
  assert.deepEqual(JSON.parse(readFileSync(file, 'utf8')), {
    // Custom metadata is for those who may read the secret's metadata.
    secrets: { a: { data: { name: 'a' } } },
  })
  const denied = await run(`export -output=${file} secret/x`, { token })
  assert.deepEqual([denied.code, /HTTP 403/.test(denied.stderr)], [1, true])
  assert.match(readFileSync(file, 'utf8'), /"a"/, 'what was there stays')
  assert.deepEqual(readdirSync(directory).sort(), ['out.json'])
  assert.equal((await run(`export -output=${directory}/no/where secret`)).code, 1)
  assert.ok(!existsSync(join(directory, 'no')))
})

test('a .env file is imported and exported, and an invalid line is named', async (t) => {
  const { run, world } = await kvCommands(t)
  const done = await run('import -format=env secret/app/db -', { input: 'USER=app\nPASSWORD="a b$"\n' })
  assert.match(done.stdout, /^Success! Imported to: secret\/app\/db \(created 1, /)
  assert.deepEqual((await readSecret(world, 'app/db')).data, { USER: 'app', PASSWORD: 'a b$' })
  assert.equal((await run('export -format=env secret/app/db')).stdout, "USER=app\nPASSWORD='a b$'\n")
  const bad = await run('import -format=env secret/app/db -', { input: 'USER=app\n\nhunter2\n' })
  assert.match(bad.stderr, /^outpost: standard input: line 3 is not NAME=value/)
  assert.ok(!bad.stderr.includes('hunter2'))
  assert.equal((await run('export -format=env secret')).code, 2)
  assert.match((await run('export -format=env secret/none')).stderr, /no value found at secret\/none/)
})

test('the commands for versions refuse a mount without versions', async (t) => {
  const { run } = await kvCommands(t, '1')
  for (const line of ['export secret', 'watch secret', 'search secret', 'diff secret/a', 'copy secret/a secret/b']) {
    const ran = await run(line)
    assert.deepEqual(
      [ran.code, /is not versioned: enable versions with "outpost kv enable-versioning secret"/.test(ran.stderr)],
      [1, true],
      line,
    )
  }
})

if (HAS_PYTHON) {
  test('an import shows its progress on a terminal', async (t) => {
    const { directory, port, world } = await kvCommands(t)
    const file = join(directory, 'tree.json')
    const secrets = Object.fromEntries(Array.from({ length: 1500 }, (_, at) => [`k${at}`, { data: { at } }]))
    writeFileSync(file, JSON.stringify({ secrets }))
    const env = {
      ...process.env,
      OUTPOST_ADDR: `http://127.0.0.1:${port}`,
      OUTPOST_TOKEN: world.rootToken,
      HOME: directory,
      TYPED: '',
      TERM: 'xterm',
    }
    const program = join(ROOT, 'test/helpers/terminal.py')
    const shown = await start('python3', [program, '80', '', OUTPOST, 'kv', 'import', 'secret/to', file], { env })
      .finished
    assert.match(shown.stdout, /\[#* *\] 0\/1500 secrets[^]*created 1500[^]*exit code 0\n$/)
  })
}

test('the position of a JSON error is that of the parser', () => {
  for (const [text, at] of [
    ['{"a" 1}', 5],
    ['[1,]', 3],
    ['{"a":1,}', 7],
    ['[1 2]', 3],
    ['{"a":[1,{"b":tru}]}', 13],
    ['"a\nb"', 0],
    ['"\\x"', 0],
    ['[01]', 2],
    ['{} x', 3],
    ['[1}', 2],
    ['{1:2}', 1],
    ['{"a":1', 6],
  ] as const) {
    assert.equal(faultIn(text), at, text)
  }
  const good = '{"a":[1,-2.5e+3,"\\u00e4\\n",{},[],null,true],"b":{"c":"x"}}'
  assert.equal(faultIn(good), good.length)
  for (let at = 0; at < good.length; at++) {
    for (const sign of [',', '"', '}', ']', ':', '1', '']) {
      const text = good.slice(0, at) + sign + good.slice(at + 1)
      let isJson = true
      try {
        JSON.parse(text)
      } catch {
        isJson = false
      }
      if (isJson) assert.equal(faultIn(text), text.length, text)
    }
  }
})
