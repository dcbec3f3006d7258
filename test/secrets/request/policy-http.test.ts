import assert from 'node:assert/strict'
import { Agent, request } from 'node:http'
import { test } from 'node:test'
import type { TestContext } from 'node:test'
import type { Core } from '../../../src/secrets/request/request-states.ts'
import type { AccessRequest } from '../../../src/secrets/policies/acl.ts'
import { InFlight } from '../../../src/secrets/request/in-flight.ts'
import { RequestCounts } from '../../../src/secrets/request/request-counts.ts'
import { listenTo } from '../../helpers/core-listener.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import type { TableRow } from '../policies/policy-rows.ts'
import { TABLE } from '../policies/policy-table.ts'
import { ALICE } from '../policies/policy-table-templates.ts'

const HEADERS: readonly ((token: string) => Record<string, string>)[] = [
  (token) => ({ 'X-Vault-Token': token }),
  (token) => ({ 'X-Nomad-Token': token }),
  (token) => ({ Authorization: `Bearer ${token}` }),
]
const DENIED = '{"errors":["1 error occurred:\\n\\t* permission denied\\n\\n"]}\n'

interface Sent {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

/** What a row asks, as a request. */
function sentFor(row: TableRow): Sent {
  const path = `/v1/${row.path.split('/').map(encodeURIComponent).join('/')}`
  const wrap = row.wrap === undefined ? {} : { 'X-Vault-Wrap-TTL': String(row.wrap) }
  const body = row.data === undefined ? {} : { body: JSON.stringify(row.data) }
  const query = new URLSearchParams(
    Object.entries(row.data ?? {}).map(([name, value]): [string, string] => [name, String(value)]),
  )
  if (row.verb === 'update' || row.verb === 'create') return { method: 'POST', path, headers: wrap, ...body }
  if (row.verb === 'patch') {
    return { method: 'PATCH', path, headers: { ...wrap, 'Content-Type': 'application/merge-patch+json' }, ...body }
  }
  if (row.verb === 'delete') return { method: 'DELETE', path: `${path}?${query.toString()}`, headers: wrap }
  if (row.verb !== 'read') query.set(row.verb, 'true')
  return { method: 'GET', path: `${path}?${query.toString()}`, headers: wrap }
}

interface Answer {
  readonly status: number
  readonly text: string
}

function answerTo(port: number, agent: Agent, { body, ...sent }: Sent): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, agent, ...sent }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (part: string) => (text += part))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
    })
    asked.on('error', reject)
    asked.end(body)
  })
}

/** A core that also knows tokens of callers with an entity, until there is something that gives entities to callers. */
class CaseCore implements Core {
  readonly audit = undefined
  readonly quotas = undefined
  readonly isSecondary = false
  readonly fence = undefined
  readonly barrier = { settled: () => undefined }
  readonly knows = () => true

  get wrapping(): never {
    throw new Error('the case core wraps nothing')
  }

  get mfa(): never {
    throw new Error('the case core has no MFA methods')
  }

  disabledOnSecondary(): never {
    throw new Error('the case core is no secondary')
  }

  get leases(): never {
    throw new Error('the core of this test issues no leases')
  }

  login(): never {
    throw new Error('no login at the case core')
  }

  releaseAliases(): never {
    throw new Error('no user is deleted at the case core')
  }

  failuresRecorded(): Promise<void> {
    return Promise.resolve()
  }

  failuresOf(mount: Parameters<Core['failuresOf']>[0]) {
    return this.#world.core.failuresOf(mount)
  }

  readonly inFlight = new InFlight()
  readonly requestCounts = new RequestCounts()
  readonly #world: CoreWorld
  readonly #callers = new Map<string, { names: readonly string[]; hasEntity: boolean }>()

  constructor(world: CoreWorld) {
    this.#world = world
  }

  add(token: string, names: readonly string[], hasEntity: boolean): void {
    this.#callers.set(token, { names, hasEntity })
  }

  get isActive(): boolean {
    return true
  }

  get anonymous() {
    return this.#world.core.anonymous
  }

  now(): number {
    return this.#world.nowMs
  }

  wallMs(): number {
    return this.#world.nowMs
  }

  find(path: string) {
    return this.#world.core.find(path)
  }

  admit(token: string | undefined) {
    const found = token === undefined ? undefined : this.#callers.get(token)
    if (!found || token === undefined) return this.#world.core.admit(token, '127.0.0.1')
    const acl = this.#world.core.open.policies.acl(found.names, this.now(), found.hasEntity ? ALICE : undefined)
    const caller = { ...this.anonymous.caller, tokenHash: token, tokenType: 'service' as const, policies: found.names }
    return {
      caller,
      decide: (asked: AccessRequest) => acl.decide(asked),
      leaseOwner: caller.tokenHash,
      reaches: (path: string) => acl.allowsAnythingUnder(path),
      isValid: () => true,
    }
  }
}

/** A token that has these policies and no others. */
async function tokenWith(world: CoreWorld, policies: readonly string[]): Promise<string> {
  const made = await world.ask('POST', 'auth/token/create', { policies, no_default_policy: true })
  assert.equal(made.status, 200, made.text)
  return String(made.body.auth['client_token'])
}

interface Cases {
  readonly port: number
  readonly tokens: readonly string[][]
  readonly capabilitiesOf: (path: string, token: string) => Promise<string>
}

/** Writes the policies of each case, and gives one token for each header: what one creates, the others would update. */
async function casesBehindHttp(t: TestContext): Promise<Cases> {
  const world = await CoreWorld.open(t)
  const core = new CaseCore(world)
  const tokens: string[][] = []
  for (const [number, { entity, policies }] of TABLE.entries()) {
    const names = policies.map((_, index) => `case-${number}-${index}`)
    for (const [index, policy] of policies.entries()) {
      const { status, text } = await world.ask('PUT', `sys/policies/acl/${names[index]}`, {
        policy: policy || '# none',
      })
      // 200 with a warning where a rule names an MFA method that does not exist.
      assert.ok(status === 204 || status === 200, text)
    }
    if (entity) {
      tokens.push(HEADERS.map((_, header) => `t-${number}-${header}`))
      for (const token of tokens[number] ?? []) core.add(token, names, true)
    } else {
      tokens.push(await Promise.all(HEADERS.map(() => tokenWith(world, names))))
    }
  }
  return {
    port: await listenTo(t, { core, lines: world.lines }),
    tokens,
    capabilitiesOf: async (path, token) => {
      const { body } = await world.ask('POST', 'sys/capabilities', { token, paths: [path] })
      return String(body.data['capabilities'])
    },
  }
}

test('the decisions of the policy table hold over HTTP with both token headers', async (t) => {
  const { capabilitiesOf, port, tokens } = await casesBehindHttp(t)
  const agent = new Agent({ keepAlive: true, maxSockets: 8 })
  t.after(() => agent.destroy())
  let asked = 0
  for (const [number, { entity, rows, shows }] of TABLE.entries()) {
    for (const row of rows) {
      if (row.verb === 'caps') {
        if (!entity) assert.equal(await capabilitiesOf(row.path, tokens[number]?.[0] ?? ''), row.outcome, shows)
        continue
      }
      const answers = await Promise.all(
        HEADERS.map((header, index) => {
          const sent = sentFor(row)
          const token = header(tokens[number]?.[index] ?? '')
          return answerTo(port, agent, { ...sent, headers: { ...sent.headers, ...token } })
        }),
      )
      for (const { status, text } of answers) {
        asked++
        const says: string = `${shows}: ${row.verb} ${row.path} ${JSON.stringify(row.data ?? {})}: ${status} ${text}`
        if (row.outcome === 'deny') assert.deepEqual([status, text], [403, DENIED], says)
        else assert.ok(status < 500 && status !== 403 && status !== 405, says)
      }
    }
  }
  assert.ok(asked >= 3 * 300, `${asked} requests`)
})

/** JSON of the answer's data. */
function dataOf({ text }: Answer): string {
  return JSON.stringify((JSON.parse(text) as { data: unknown }).data)
}

test('a token can read its own capabilities', async (t) => {
  const world = await CoreWorld.open(t)
  const core = new CaseCore(world)
  const policy = `path "kv/a" { capabilities = ["update", "read"] required_parameters = ["ttl"] min_wrapping_ttl = "5s" }
    path "kv/b*" { capabilities = ["list"] allowed_parameters = { n = [1] } denied_parameters = { "*" = [] } }
    path "kv/+/c*" { capabilities = ["deny"] }
    path "kv/none" {}
    path "__proto__" { capabilities = ["read"] }`
  await world.ask('PUT', 'sys/policies/acl/own', { policy })
  core.add('t', ['default', 'own'], true)
  const port = await listenTo(t, { core, lines: world.lines })
  const agent = new Agent({ keepAlive: true })
  t.after(() => agent.destroy())
  const headers = { 'X-Vault-Token': 't' }
  const asking = (paths: unknown) => {
    const body = JSON.stringify({ paths })
    return answerTo(port, agent, { method: 'POST', path: '/v1/sys/capabilities-self', headers, body })
  }

  assert.equal(
    dataOf(await asking(['kv/a', '/kv/b/', 'kv/x/c', 'kv/none', 'else', '__proto__'])),
    '{"kv/a":["read","update"],"/kv/b/":["list"],"kv/x/c":["deny"],"kv/none":["deny"],"else":["deny"],"__proto__":["read"]}',
  )
  assert.equal(dataOf(await asking('kv/a')), '{"capabilities":["read","update"],"kv/a":["read","update"]}')
  const many = await asking(Array.from({ length: 10_001 }, (_, index) => `kv/${index}`))
  assert.deepEqual([many.status, many.text], [400, '{"errors":["more than 10000 paths: send several requests"]}\n'])

  const all = await answerTo(port, agent, { method: 'GET', path: '/v1/sys/internal/ui/resultant-acl', headers })
  const { data } = JSON.parse(all.text) as {
    data: { root: boolean; exact_paths: Record<string, unknown>; glob_paths: Record<string, unknown> }
  }
  assert.equal(data.root, false)
  assert.deepEqual(data.exact_paths['kv/a'], {
    capabilities: ['read', 'update'],
    min_wrapping_ttl: 5,
    required_parameters: ['ttl'],
  })
  assert.deepEqual(data.exact_paths['kv/none'], { capabilities: ['deny'] })
  assert.deepEqual(data.glob_paths['kv/b'], {
    capabilities: ['list'],
    allowed_parameters: { n: [1] },
    denied_parameters: { '*': [] },
  })
  assert.deepEqual(data.glob_paths['kv/+/c*'], { capabilities: ['deny'] })
  assert.ok(Object.hasOwn(data.glob_paths, 'cubbyhole/'))
  assert.deepEqual((await world.ask('GET', 'sys/internal/ui/resultant-acl')).body.data, { root: true })
})

test('a list over HTTP omits the names that its caller has no access to', async (t) => {
  const world = await CoreWorld.open(t)
  const core = new CaseCore(world)
  const policy = `path "sys/policies/acl" { capabilities = ["list"] list_scan_response_keys_filter_path = "{{ .path }}{{ .key }}" }
    path "sys/policies/acl/o*" { capabilities = ["read"] }`
  for (const name of ['own', 'other', 'third']) await world.ask('PUT', `sys/policies/acl/${name}`, { policy })
  core.add('t', ['own'], false)
  const port = await listenTo(t, { core, lines: world.lines })
  const agent = new Agent()
  const asked = { method: 'GET', headers: { 'X-Vault-Token': 't' } }
  const list = await answerTo(port, agent, { ...asked, path: '/v1/sys/policies/acl?list=true' })
  assert.equal(dataOf(list), '{"keys":["other","own"]}')
  await world.ask('DELETE', 'sys/policies/acl/other')
  await world.ask('PUT', 'sys/policies/acl/own', { policy: policy.replace('acl/o*', 'acl/x*') })
  const nothing = await answerTo(port, agent, { ...asked, path: '/v1/sys/policies/acl?list=true' })
  assert.deepEqual([nothing.status, nothing.text], [404, '{"errors":[]}\n'])
})

/** A rule for one path, and what restricts it. */
function restricted(rest: string): string {
  return `path "cubbyhole/a" { capabilities = ["read", "update", "create"] ${rest} }`
}

test('a rule with mfa_methods allows nothing to a token without an entity', async (t) => {
  const world = await CoreWorld.open(t)
  await world.ask('PUT', 'sys/policies/acl/p', { policy: restricted('') })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['p'], no_default_policy: true })
  const token = String(made.body.auth['client_token'])
  const write = async () => (await world.ask('PUT', 'cubbyhole/a', { x: 1 }, { token })).status
  assert.equal(await write(), 204)
  await world.ask('PUT', 'sys/policies/acl/p', { policy: restricted('mfa_methods = ["totp"]') })
  assert.equal(await write(), 403)
  assert.equal((await world.ask('GET', 'cubbyhole/a', undefined, { token })).status, 403)
  await world.ask('PUT', 'sys/policies/acl/p', { policy: restricted('') })
  assert.deepEqual((await world.ask('GET', 'cubbyhole/a', undefined, { token })).body.data, { x: 1 })
})

test('a list limit applies also if the engine has none', async (t) => {
  const world = await CoreWorld.open(t)
  const rules = ['cubbyhole/*', 'sys/policies/acl'].map(
    (path) => `path "${path}" { capabilities = ["list", "create"] pagination_limit = 2 }`,
  )
  await world.ask('PUT', 'sys/policies/acl/p', { policy: rules.join('\n') })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['p'], no_default_policy: true })
  const token = String(made.body.auth['client_token'])
  for (const name of 'abcd') await world.ask('PUT', `cubbyhole/${name}`, { x: 1 }, { token })
  const listed = async (path: string) => (await world.ask('LIST', path, undefined, { token })).body.data['keys']
  assert.deepEqual(await listed('cubbyhole'), ['a', 'b'])
  assert.deepEqual(await listed('sys/policies/acl'), ['default', 'p'])
  assert.equal((await world.ask('LIST', 'cubbyhole?limit=3', undefined, { token })).status, 403)
  assert.deepEqual((await world.ask('LIST', 'sys/policies/acl')).body.data, { keys: ['default', 'p', 'root'] })
})
