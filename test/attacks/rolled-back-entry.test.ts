/**
 * An attacker who can write the database file but has no key restores old rows of single entries, while the server is
 * stopped or running, with correct checksums. Reads of such entries are refused.
 */
import assert from 'node:assert/strict'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import { test, type TestContext } from 'node:test'
import { type AgentHere, agentHere } from '../helpers/agent-here.ts'
import { type RunningAgent, startAgent, workDirectory } from '../helpers/agent-process.ts'
import { send } from '../helpers/openbao-replay.ts'
import { eventually } from '../helpers/eventually.ts'

type Row = Readonly<Record<string, SQLInputValue>>
type Rows = ReadonlyMap<string, Row>

interface Body {
  readonly data?: { readonly data?: Readonly<Record<string, unknown>>; readonly keys?: readonly string[] }
  readonly auth?: { readonly client_token: string }
  readonly errors?: readonly string[]
  readonly warnings?: readonly string[]
}

class Victim {
  readonly #t: TestContext
  readonly data: string
  readonly #args: string[]
  #agent: AgentHere | RunningAgent | undefined

  /** With the files of another one, where such are given. */
  constructor(t: TestContext, files?: string) {
    this.#t = t
    this.data = workDirectory(t)
    if (files !== undefined) cpSync(files, this.data, { recursive: true })
    const args = ['-dev', '-dev-no-demo', '-http-port', '0', '-cluster-port', '0', '-dev-root-token-id', 'root']
    this.#args = [...args, '-data-dir', this.data]
  }

  async start(): Promise<void> {
    this.#agent = await agentHere(this.#t, this.#args)
  }

  /** For a server that is killed, or whose files are touched while it runs. */
  async startProcess(): Promise<void> {
    this.#agent = await startAgent(this.#t, this.#args)
  }

  /** For a start that fails: what it says. */
  async startFailing(): Promise<string> {
    return await agentHere(this.#t, this.#args).then(
      () => assert.fail('it has started'),
      (error: Error) => error.message,
    )
  }

  async stop(): Promise<void> {
    if (this.#agent && 'stop' in this.#agent) await this.#agent.stop()
    else await this.#end('SIGTERM')
  }

  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const { child, ended } = this.#process
    child.kill(signal)
    await ended
  }

  get #process(): RunningAgent {
    assert.ok(this.#agent && 'child' in this.#agent)
    return this.#agent
  }

  /** Copies the files as a kill at this moment would leave them. */
  copyAsKilled(to: string): void {
    const { child, pid } = this.#process
    child.kill('SIGSTOP')
    while (!/^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')));
    cpSync(this.data, to, { recursive: true })
    child.kill('SIGCONT')
  }

  get said(): string {
    return `${this.#agent?.stderr() ?? ''}${this.#agent?.stdout() ?? ''}`
  }

  async ask(method: string, path: string, body?: unknown, token = 'root'): Promise<{ status: number; body: Body }> {
    const headers = { 'X-Vault-Token': token }
    const asked = { method, path: `/v1/${path}`, headers, ...(body !== undefined && { body: JSON.stringify(body) }) }
    const { body: text, status } = await send(this.#agent?.port ?? 0, asked)
    return { status, body: JSON.parse(text || '{}') as Body }
  }

  async done(method: string, path: string, body?: unknown): Promise<Body> {
    const answer = await this.ask(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status}`)
    return answer.body
  }

  async metric(name: string): Promise<number> {
    const { body } = await send(this.#agent?.port ?? 0, {
      method: 'GET',
      path: '/v1/metrics?format=prometheus',
      headers: {},
    })
    return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(body)?.[1] ?? Number.NaN)
  }

  #inDatabase<T>(work: (database: DatabaseSync) => T): T {
    const database = new DatabaseSync(join(this.data, 'server/secrets.db'), { timeout: 5000 })
    try {
      return work(database)
    } finally {
      database.close()
    }
  }

  rows(): Rows {
    return this.#inDatabase((database) => {
      const all = database.prepare('SELECT path, sequence, crc, value FROM entries').all() as unknown as Row[]
      return new Map(all.map((row) => [textOf(row['path']), row]))
    })
  }

  /** Makes these paths what they were in `old`: replaced, put back or removed. The checksums of the rows go with them. */
  bringBack(old: Rows, paths: Iterable<string>): void {
    this.#inDatabase((database) => {
      const put = database.prepare(
        `INSERT INTO entries (path, sequence, crc, value) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (path) DO UPDATE SET sequence = ?2, crc = ?3, value = ?4`,
      )
      const remove = database.prepare('DELETE FROM entries WHERE path = ?')
      for (const path of paths) {
        const row = old.get(path)
        if (row) put.run(path, row['sequence'] ?? 0, row['crc'] ?? 0, row['value'] ?? null)
        else remove.run(path)
      }
    })
  }

  /** What one request changes in the database, but for what the server keeps for itself. */
  async changedBy(work: () => Promise<unknown>): Promise<{ before: Rows; after: Rows; paths: string[] }> {
    const before = this.rows()
    await work()
    const after = this.rows()
    const paths = [...new Set([...before.keys(), ...after.keys()])].filter((path) => {
      const [one, other] = [before.get(path)?.['value'], after.get(path)?.['value']]
      // The core writes by itself below `core/`, its clock for one.
      return !path.startsWith('core/') && !path.startsWith('local/') && !Buffer.from(bytes(one)).equals(bytes(other))
    })
    assert.ok(paths.length > 0)
    return { before, after, paths }
  }
}

function textOf(value: SQLInputValue | undefined): string {
  return typeof value === 'string' ? value : ''
}

function bytes(value: SQLInputValue | undefined): Uint8Array {
  return value instanceof Uint8Array ? value : new Uint8Array()
}

/** Everything that is attacked, and what was done to it since. Leaves the server running. */
async function prepare(victim: Victim) {
  await victim.startProcess()
  await victim.done('POST', 'secret/data/db', { data: { password: 'leaked' } })
  await victim.done('POST', 'secret/data/left', { data: { is: 'alone' } })
  await victim.done('POST', 'secret/data/gone', { data: { was: 'here' } })
  await victim.done('POST', 'cubbyhole/kept', { was: 'kept' })
  const token = (await victim.done('POST', 'auth/token/create', { policies: ['root'] })).auth?.client_token ?? ''
  await victim.done('PUT', 'sys/policy/strict', { policy: 'path "secret/*" { capabilities = ["deny"] }' })
  const rotated = await victim.changedBy(() => victim.done('POST', 'secret/data/db', { data: { password: 'rotated' } }))
  const deleted = await victim.changedBy(() => victim.done('DELETE', 'secret/metadata/gone'))
  const revoked = await victim.changedBy(() => victim.done('POST', 'auth/token/revoke', { token }))
  const written = await victim.changedBy(() =>
    victim.done('PUT', 'sys/policy/stricter', { policy: 'path "*" { capabilities = ["deny"] }' }),
  )
  return { token, rotated, deleted, revoked, written }
}

/** Prepared once for all tests: the files of a killed server and of a stopped one. */
async function preparedOnce(t: TestContext) {
  const victim = new Victim(t)
  const was = await prepare(victim)
  const killed = workDirectory(t)
  victim.copyAsKilled(killed)
  await victim.stop()
  return { ...was, killed, stopped: victim.data }
}

type Prepared = Awaited<ReturnType<typeof preparedOnce>>

async function refused(victim: Victim, path: string, token = 'root'): Promise<void> {
  const { body, status } = await victim.ask('GET', path, undefined, token)
  assert.equal(status, 500, `${path}: ${JSON.stringify(body)}`)
  assert.match(body.errors?.join() ?? '', /the database was changed: a required entry/, path)
  assert.equal(JSON.stringify(body).includes('leaked'), false)
}

async function oldStateWhileStopped(t: TestContext, was: Prepared): Promise<void> {
  const { deleted, revoked, rotated, token, written } = was
  const victim = new Victim(t, was.stopped)
  for (const { before, paths } of [rotated, deleted, revoked, written]) victim.bringBack(before, paths)
  await victim.start()
  await refused(victim, 'secret/data/db')
  await refused(victim, 'secret/data/gone')
  await refused(victim, 'auth/token/lookup-self', token)
  await refused(victim, 'sys/policy/stricter')
  assert.deepEqual((await victim.done('GET', 'secret/data/left')).data?.data, { is: 'alone' })
  const health = await victim.done('GET', 'sys/health')
  assert.match(health.warnings?.join() ?? '', /the database was changed by another program/)
  const status = await victim.done('GET', 'sys/seal-status')
  assert.match(status.warnings?.join() ?? '', /the database was changed by another program/)
  await eventually(() => victim.said.includes('"kind":"put back"'), 'the log names what was found')
  await eventually(async () => (await victim.metric('outpost_store_foreign_changes')) > 0, 'a metric tells of it')
}

async function oldStateWhileRunning(t: TestContext, was: Prepared): Promise<void> {
  const { deleted, revoked, rotated, token, written } = was
  const victim = new Victim(t, was.killed)
  await victim.startProcess()
  // Nothing of it has been read since, so that the server cannot have it in its memory.
  for (const { before, paths } of [rotated, deleted, revoked, written]) victim.bringBack(before, paths)
  await refused(victim, 'secret/data/db')
  await refused(victim, 'secret/data/gone')
  await refused(victim, 'auth/token/lookup-self', token)
  await refused(victim, 'sys/policy/stricter')
  await victim.done('POST', 'cubbyhole/meanwhile', { others: 'go on' })
  for (const { after, paths } of [rotated, deleted, revoked, written]) victim.bringBack(after, paths)
  await victim.kill()
  await victim.start()
  assert.deepEqual((await victim.done('GET', 'secret/data/db')).data?.data, { password: 'rotated' })
  await victim.done('GET', 'sys/policy/stricter')
  assert.equal((await victim.ask('GET', 'auth/token/lookup-self', undefined, token)).status, 403)
}

async function removedBelowListing(t: TestContext, was: Prepared): Promise<void> {
  const { written } = was
  const victim = new Victim(t, was.stopped)
  victim.bringBack(written.before, written.paths)
  await victim.start()
  await eventually(async () => {
    const { body, status } = await victim.ask('LIST', 'sys/policies/acl')
    if (status === 500) assert.match(body.errors?.join() ?? '', /the database was changed/)
    return status === 500
  }, 'listings are refused')
}

async function removedHelp(t: TestContext, was: Prepared): Promise<void> {
  const { rotated } = was
  const victim = new Victim(t, was.stopped)
  const now = victim.rows()
  victim.bringBack(rotated.before, rotated.paths)
  const local = [...now.keys()].filter((path) => path.startsWith('local/'))
  assert.ok(local.length > 0)
  victim.bringBack(new Map(), local)
  assert.match(await victim.startFailing(), /the database was changed by another program/)
  // Neither does it help to remove the head, or to put the one of that day in its place.
  victim.bringBack(new Map(), ['core/head'])
  assert.match(await victim.startFailing(), /the database was changed by another program/)
  victim.bringBack(rotated.before, ['core/head'])
  assert.match(await victim.startFailing(), /the database was changed by another program/)
  // The keyring of before a rotation opens nothing that was written since.
  victim.bringBack(now, now.keys())
  await victim.start()
  assert.deepEqual((await victim.done('GET', 'secret/data/db')).data?.data, { password: 'rotated' })
}

async function wholeDatabaseBack(t: TestContext, was: Prepared): Promise<void> {
  const victim = new Victim(t, was.stopped)
  const file = join(victim.data, 'server/secrets.db')
  const copy = readFileSync(file)
  await victim.start()
  await victim.done('POST', 'secret/data/db', { data: { password: 'new' } })
  await victim.stop()
  writeFileSync(file, copy)
  await victim.start()
  assert.deepEqual((await victim.done('GET', 'secret/data/db')).data?.data, { password: 'rotated' })
  assert.match(
    (await victim.done('GET', 'sys/seal-status')).warnings?.join() ?? '',
    /older than what this server wrote/,
  )
  await eventually(() => /older than what this server wrote/.test(victim.said), 'the log says so')
  // From here on it is the database.
  await victim.stop()
  await victim.start()
  assert.equal((await victim.done('GET', 'sys/seal-status')).warnings, undefined)
}

async function badBits(t: TestContext, was: Prepared): Promise<void> {
  const victim = new Victim(t, was.stopped)
  const rows = victim.rows()
  const paths = was.rotated.paths.filter((path) => rows.has(path))
  assert.ok(paths.length > 0)
  const bad = [...rows].map(([path, row]) => [path, { ...row, value: Buffer.from('another value') }] as const)
  victim.bringBack(new Map(bad), paths)
  await victim.start()
  assert.equal((await victim.ask('GET', 'secret/data/db')).status, 500)
  // Said by whichever finds it first: the read of the entry, or the look at all entries after the start.
  const named = /the entry .* is damaged|the database was changed by another program","entry":"logical/
  await eventually(() => named.test(victim.said), 'the log names it')
  assert.deepEqual((await victim.done('GET', 'secret/data/left')).data?.data, { is: 'alone' })
}

async function databaseRemoved(t: TestContext, was: Prepared): Promise<void> {
  const victim = new Victim(t, was.stopped)
  for (const end of ['', '-wal', '-shm']) rmSync(join(victim.data, `server/secrets.db${end}`), { force: true })
  const why = /secrets\.db is empty, and this server had written \d+ changes: it was removed or truncated/
  assert.match(await victim.startFailing(), why)
  // The one step of an operator who means it.
  rmSync(join(victim.data, 'server/secrets.db.seen'))
  await victim.start()
  await victim.stop()
  assert.doesNotMatch(victim.said, why)
}

test('rolled-back entries are refused and reported', async (t) => {
  const was = await preparedOnce(t)
  await t.test(
    'an old state of single entries that is restored while the server is stopped is refused and reported',
    (tt) => oldStateWhileStopped(tt, was),
  )
  await t.test('an old state is refused also if the server runs or was killed', (tt) => oldStateWhileRunning(tt, was))
  await t.test('a removed entry below a listing fails listings once all entries were checked', (tt) =>
    removedBelowListing(tt, was),
  )
  await t.test('removing the data that detects a rollback, too, keeps the server sealed', (tt) => removedHelp(tt, was))
  await t.test('a complete database of an earlier moment is served and reported as a restore', (tt) =>
    wholeDatabaseBack(tt, was),
  )
  await t.test('entries with flipped bits are 500 with their path in the log, and the others are served', (tt) =>
    badBits(tt, was),
  )
  await t.test('a removed database is not replaced by a new server without an error', (tt) => databaseRemoved(tt, was))
})
