/**
 * The table of what KV paths read, path by path: what a rule about `data/` or `metadata/` denies, or gives with a code only,
 * is in no answer of another path.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Path } from '../../../src/engines/framework/engine.ts'
import { inPath } from '../../../src/engines/framework/fields.ts'
import { kv } from '../../../src/engines/kv/kv.ts'
import { type KvRead, kvPath, PLAIN_READS, VERSIONED_READS } from '../../../src/engines/kv/store/rights.ts'
import { MfaWorld, type Person } from '../../helpers/mfa-world.ts'

const EVERY = '["create", "read", "update", "patch", "delete", "list", "scan"]'
/** A value, a member of the data, custom metadata, and the folder of the secret. */
const PLANTED = ['planted-value', 'planted_member', 'planted-custom']
const FOLDER = 'closed'
const SECRET = `${FOLDER}/app`

type Asked = readonly [method: string, path: string, body?: unknown]

/** A request of each operation of each path that would show the secret, or names it. */
const REQUESTS: Readonly<Record<string, readonly Asked[]>> = {
  'read config': [['GET', 'config']],
  'update config': [['POST', 'config', { max_versions: 10 }]],
  'read data/:path+': [
    ['GET', `data/${SECRET}`],
    ['GET', `data/${SECRET}?version=1`],
    ['GET', `data/${SECRET}?at=2999-01-01T00:00:00Z`],
  ],
  'update data/:path+': [['POST', `data/${SECRET}`, { data: { new: 1 } }]],
  'patch data/:path+': [['PATCH', `data/${SECRET}`, { data: { new: 1 } }]],
  'delete data/:path+': [['DELETE', `data/${SECRET}`]],
  'read subkeys/:path+': [
    ['GET', `subkeys/${SECRET}`],
    ['GET', `subkeys/${SECRET}?version=1`],
  ],
  'read metadata/:path+': [['GET', `metadata/${SECRET}`]],
  'update metadata/:path+': [['POST', `metadata/${SECRET}`, { max_versions: 9 }]],
  'patch metadata/:path+': [['PATCH', `metadata/${SECRET}`, { max_versions: 9 }]],
  'delete metadata/:path+': [['DELETE', `metadata/${SECRET}`]],
  'list metadata/:path+': [['LIST', `metadata/${FOLDER}?exclude_deleted=true`]],
  'scan metadata/:path+': [['SCAN', `metadata/${FOLDER}`]],
  'read metadata': [['GET', 'metadata']],
  'update metadata': [['POST', 'metadata', {}]],
  'patch metadata': [['PATCH', 'metadata', {}]],
  'delete metadata': [['DELETE', 'metadata']],
  'list metadata': [['LIST', 'metadata']],
  'scan metadata': [['SCAN', 'metadata']],
  'list detailed-metadata/:path*': [
    ['LIST', `detailed-metadata/${FOLDER}`],
    ['LIST', 'detailed-metadata'],
  ],
  'scan detailed-metadata/:path*': [
    ['SCAN', `detailed-metadata/${FOLDER}`],
    ['SCAN', 'detailed-metadata'],
  ],
  'update delete/:path+': [['POST', `delete/${SECRET}`, { versions: [1] }]],
  'update undelete/:path+': [['POST', `undelete/${SECRET}`, { versions: [1] }]],
  'update destroy/:path+': [['POST', `destroy/${SECRET}`, { versions: [1] }]],
  'update transaction': [['POST', 'transaction', { operations: [{ op: 'check', path: SECRET, cas: 2 }] }]],
  'update copy/:path+': [['POST', `copy/${SECRET}`, { to: 'open/copy' }]],
  'update move/:path+': [['POST', `move/${SECRET}`, { to: 'open/moved' }]],
  'read diff/:path+': [['GET', `diff/${SECRET}?values=true`]],
  'read search/:path*': [
    ['GET', `search/${FOLDER}`],
    ['GET', 'search?name=app'],
  ],
  'read export/:path*': [
    ['GET', `export/${FOLDER}`],
    ['GET', `export/${SECRET}?format=env`],
  ],
  'update import/:path*': [
    ['POST', 'import', { secrets: { [SECRET]: { data: { planted_member: 'planted-value' } } }, dry_run: true }],
  ],
  'read watch/:path*': [['GET', 'watch/?cursor=CURSOR&wait=0']],
  'read :path*': [['GET', SECRET]],
  'list :path*': [['LIST', FOLDER]],
  'scan :path*': [['SCAN', FOLDER]],
  'update :path*': [['POST', SECRET, { a: 1 }]],
  'patch :path*': [['PATCH', SECRET, { a: 1 }]],
  'delete :path*': [['DELETE', SECRET]],
}

/** What a path reads, by operation and pattern. */
const READS: readonly (readonly [string, readonly KvRead[]])[] = Object.entries(VERSIONED_READS).flatMap(
  ([pattern, reads]) => Object.entries(reads).map(([verb, each]) => [`${verb} ${pattern}`, each] as const),
)

const isOf = (reads: readonly KvRead[], ...kinds: readonly KvRead[]) => reads.some((each) => kinds.includes(each))

async function opened(t: TestContext) {
  const mfa = await MfaWorld.open(t, { engines: [kv] })
  const { world } = mfa
  await world.ask('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
  const cursor = String((await world.ask('GET', 'secret/watch/')).body.data['cursor'])
  await planted(mfa)
  await mfa.method('phone')
  return { mfa, cursor }
}

/** The secret with two versions and custom metadata, as new. */
async function planted({ world }: MfaWorld): Promise<void> {
  await world.ask('DELETE', `secret/metadata/${SECRET}`)
  for (const value of ['planted-value', 'planted-value-2']) {
    const answer = await world.ask('POST', `secret/data/${SECRET}`, { data: { planted_member: value } })
    assert.equal(answer.status, 200, answer.text)
  }
  await world.ask('POST', `secret/metadata/${SECRET}`, { custom_metadata: { note: 'planted-custom' } })
}

/** A token that may do everything but what `rules` say of paths of the mount. */
async function personWith(mfa: MfaWorld, name: string, rules: Readonly<Record<string, string>>): Promise<Person> {
  const all = { '*': `capabilities = ${EVERY}`, ...rules }
  const text = Object.entries(all).map(([path, rule]) => `path "secret/${path}" { ${rule} }`)
  await mfa.policy(name, text.join('\n'))
  return await mfa.person(name, [name])
}

const DENY = 'capabilities = ["deny"]'
const CODE = `capabilities = ${EVERY} mfa_methods = ["phone"]`

/** Rules about everything that the secret has. */
const onBoth = (rule: string) => ({
  [`data/${FOLDER}/*`]: rule,
  [`metadata/${FOLDER}/*`]: rule,
})

function declared(paths: readonly Path[]): string[] {
  return paths.flatMap(({ handlers, pattern }) =>
    Object.keys(handlers).flatMap((verb) => (verb === 'create' ? [] : [`${verb} ${pattern}`])),
  )
}

test('each operation of each path has an entry in the table, and one without is refused', () => {
  assert.deepEqual(new Set(declared(kv.paths)), new Set(READS.map(([operation]) => operation)))
  assert.deepEqual(new Set(Object.keys(REQUESTS)), new Set(READS.map(([operation]) => operation)))
  const plain = Object.entries(PLAIN_READS).flatMap(([pattern, reads]) =>
    Object.keys(reads).map((verb) => `${verb} ${pattern}`),
  )
  const facts = { options: { version: '1' } }
  assert.deepEqual(new Set(declared(kv.pathsFor?.(facts.options) ?? [])), new Set(plain))
  const fields = { path: inPath('Name of the secret') }
  assert.throws(
    () => kvPath({ pattern: 'peek/:path+', summary: 'A new path', fields, read: () => undefined }),
    /no entry for read peek\/:path\+/,
  )
})

test('operations are refused if the rules for the data that they read refuse it', () => {
  const judged = READS.filter(([, reads]) => isOf(reads, 'data', 'metadata', 'names'))
  assert.deepEqual(Object.fromEntries(judged), {
    'read subkeys/:path+': ['data'],
    'list detailed-metadata/:path*': ['names', 'metadata of each'],
    'scan detailed-metadata/:path*': ['names', 'names of each', 'metadata of each'],
    'update copy/:path+': ['data', 'metadata'],
    'update move/:path+': ['data', 'metadata'],
    'read diff/:path+': ['data'],
  })
})

test('no path reveals data that a rule on data/ or metadata/ denies or protects by MFA', async (t) => {
  const { cursor, mfa } = await opened(t)
  for (const [what, rule] of [['deny', DENY] as const, ['code', CODE] as const]) {
    const person = await personWith(mfa, what, onBoth(rule))
    for (const [operation, reads] of READS) {
      for (const [method, path, body] of REQUESTS[operation] ?? []) {
        const whole = `secret/${path.replace('CURSOR', cursor)}`
        const { status, text } = await mfa.world.ask(method, whole, body, { token: person.token })
        const asked = `${what}: ${method} ${whole}: ${status} ${text}`
        for (const mark of PLANTED) assert.ok(!text.includes(mark), asked)
        const isNamed = whole.includes(FOLDER)
        if (isNamed && isOf(reads, 'data', 'metadata', 'names')) assert.equal(status, 403, asked)
        // A folder that may not be listed is not shown by a list of what is below the one above.
        if (isOf(reads, 'names of each')) assert.ok(!text.includes(`${FOLDER}/app`), asked)
        // What reads nothing of it is not refused for it.
        if (reads.length === 0 && isNamed && !/(?:data|metadata)\/closed/.test(whole))
          assert.notEqual(status, 403, asked)
      }
    }
    await planted(mfa)
  }
})

test('a rule about data/ and metadata/ with an empty template or required wrapping applies to other paths', async (t) => {
  const { cursor, mfa } = await opened(t)
  const value = '{{identity.entity.metadata.team}}'
  const wrapped = `capabilities = ${EVERY} min_wrapping_ttl = "10s"`
  for (const [what, rules] of [
    ['template', { [`data/${FOLDER}/${value}`]: DENY, [`metadata/${value}/*`]: DENY }] as const,
    ['wrapping', onBoth(wrapped)] as const,
  ]) {
    const person = await personWith(mfa, what, rules)
    for (const [operation, reads] of READS) {
      if (!isOf(reads, 'data', 'metadata', 'names')) continue
      for (const [method, path, body] of REQUESTS[operation] ?? []) {
        const whole = `secret/${path.replace('CURSOR', cursor)}`
        if (!whole.includes(FOLDER)) continue
        const { status, text } = await mfa.world.ask(method, whole, body, { token: person.token })
        assert.equal(status, 403, `${what}: ${method} ${whole}: ${text}`)
      }
    }
  }
})

test('a path that reads data/ or metadata/ is allowed with the MFA code that the rule there requires', async (t) => {
  const { mfa } = await opened(t)
  const person = await personWith(mfa, 'owner', onBoth(CODE))
  const { secret } = await mfa.enrol('phone', person)
  for (const [operation, reads] of READS) {
    if (!isOf(reads, 'data', 'metadata', 'names')) continue
    for (const [method, path, body] of REQUESTS[operation] ?? []) {
      if (!path.includes(FOLDER)) continue
      await planted(mfa)
      mfa.world.nowMs += 60_000
      const coded = { token: person.token, headers: { 'X-Vault-MFA': `phone:${mfa.code(secret)}` } }
      const answer = await mfa.world.ask(method, `secret/${path}`, body, coded)
      assert.equal(answer.status, 200, `${method} ${path}: ${answer.text}`)
      const isShown = PLANTED.some((mark) => answer.text.includes(mark)) || /copy|move/.test(path)
      assert.ok(isShown, `${method} ${path}: ${answer.text}`)
    }
  }
})

test('a missing grant on data/ and metadata/ does not forbid subkeys/ and detailed-metadata/', async (t) => {
  const { mfa } = await opened(t)
  await mfa.policy(
    'own',
    'path "secret/subkeys/*" { capabilities = ["read"] } path "secret/detailed-metadata/*" { capabilities = ["list"] }',
  )
  const { token } = await mfa.person('own', ['own'])
  const shown = async (method: string, path: string) => {
    const { status, text } = await mfa.world.ask(method, `secret/${path}`, undefined, { token })
    assert.equal(status, 200, `${method} ${path}: ${text}`)
    return text
  }
  assert.match(await shown('GET', `subkeys/${SECRET}`), /planted_member/)
  assert.match(await shown('LIST', `detailed-metadata/${FOLDER}`), /planted-custom/)
})

test('a version that may not be read has no subkeys either', async (t) => {
  const { mfa } = await opened(t)
  const rule = `capabilities = ${EVERY} denied_parameters = { version = ["1"] }`
  const { token } = await personWith(mfa, 'versions', { 'data/*': rule })
  const ask = (query: string) => mfa.world.ask('GET', `secret/subkeys/${SECRET}${query}`, undefined, { token })
  assert.equal((await ask('?version=1')).status, 403)
  assert.equal((await ask('?version=2')).status, 200)
  assert.equal((await ask('')).status, 200)
})

test('a list shows the name of a secret with denied metadata but neither metadata nor deletion', async (t) => {
  const { mfa } = await opened(t)
  const { token } = await personWith(mfa, 'lister', { [`metadata/${SECRET}`]: DENY })
  await mfa.world.ask('DELETE', `secret/data/${SECRET}`)
  const listed = await mfa.world.ask('LIST', `secret/metadata/${FOLDER}?exclude_deleted=true`, undefined, { token })
  assert.deepEqual(listed.body.data, { keys: ['app'] })
  for (const method of ['LIST', 'SCAN']) {
    const detailed = await mfa.world.ask(method, `secret/detailed-metadata/${FOLDER}`, undefined, { token })
    assert.deepEqual(
      detailed.body.data,
      { keys: ['app'], key_info: { app: {} } },
      'its name, and nothing that is kept of it',
    )
  }
})
