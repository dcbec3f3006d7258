/** `outpost operator dr join` and `dr switch` between two real servers: nothing that was acknowledged is lost, and a cut change goes on. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { commandsAt } from '../helpers/secrets-server.ts'

const WRITERS = 4

/** Writes to one server until it refuses, several writes at a time; what was acknowledged is kept. */
class Writer {
  readonly acknowledged: string[] = []
  readonly #server: DrServer
  readonly #token: string
  readonly #running: Promise<void>[]
  #count = 0

  constructor(server: DrServer, token: string) {
    this.#server = server
    this.#token = token
    this.#running = Array.from({ length: WRITERS }, () => this.#run())
  }

  async #run(): Promise<void> {
    for (;;) {
      const name = `w${this.#count++}`
      const { status } = await this.#server.ask('POST', `kv/data/${name}`, { data: { value: name } }, this.#token)
      if (status !== 200) return
      this.acknowledged.push(name)
    }
  }

  /** Resolves once the server has refused all writers. */
  async refused(): Promise<void> {
    await Promise.all(this.#running)
  }
}

test('a join, and a role change under load and back', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const [a, b] = await Promise.all([DrServer.start(t, 'a', '', directory), DrServer.start(t, 'b', '', directory)])
  const { token } = a.keys
  const shares = `${a.keys.shares.join('\n')}\n`
  const run = (server: DrServer, line: string, input = '', as = token) =>
    commandsAt(server.agent, directory)(`operator dr ${line}`, input, as)
  const switched = (from: DrServer, to: DrServer, more = '', input = shares) =>
    run(from, `switch -secondary ${to.agent.url}${more}`, input)

  await t.test('a primary on loopback warns in responses, log and status', async () => {
    const enabled = await run(a, 'enable')
    assert.equal(enabled.code, 0, enabled.stderr)
    const warning = /the cluster address 127\.0\.0\.1:\d+ is on loopback and .*set addresses\.cluster \(or bind_addr\)/
    assert.match(enabled.stderr, warning)
    const { body } = await a.told('POST', `${DR}/primary/secondary-token`, { id: 'unused' })
    assert.match((body['warnings'] as string[]).join(), warning)
    await a.told('POST', `${DR}/primary/revoke-secondary`, { id: 'unused' })
    assert.match(((await a.status())['warnings'] as string[]).join(), warning)
    assert.match((await run(a, 'status')).stdout, /^Warning +the cluster address .* is on loopback/m)
    assert.match(a.agent.stderr(), /secondaries may not reach this DR primary/)
  })

  await t.test('a token as an argument is refused and not printed', async () => {
    for (const line of ['join SECRET-TOKEN', 'join - SECRET-TOKEN', 'enable SECRET-TOKEN', 'enable - SECRET-TOKEN']) {
      const { code, stderr, stdout } = await run(b, line, '', b.keys.token)
      assert.deepEqual([code, stdout], [2, ''], line)
      assert.match(stderr, /activation token is not accepted as an argument/, line)
      assert.doesNotMatch(stderr, /SECRET-TOKEN/)
    }
    const share = await run(a, `switch -secondary ${b.agent.url} SECRET-SHARE`)
    assert.equal(share.code, 2)
    assert.doesNotMatch(share.stderr, /SECRET-SHARE/)
    assert.deepEqual(await b.status(), { mode: 'disabled' })
  })

  await t.test('join returns when the initial sync is complete and the secondary follows', async () => {
    await a.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
    const issued = await run(a, 'token b')
    assert.match(issued.stderr, /is on loopback/)
    assert.match((await run(a, 'join', issued.stdout)).stderr, /is a DR primary: /)
    const used = await run(b, 'join', 'a.b.c', b.keys.token)
    assert.deepEqual([used.code, used.stdout], [1, ''], used.stderr)
    const joined = await run(b, 'join', issued.stdout, b.keys.token)
    assert.equal(joined.code, 0, joined.stderr)
    assert.match(
      joined.stdout,
      /^Success! This cluster is a DR secondary and follows http\S+\. Next: outpost operator unseal/,
    )
    const status = await b.status()
    assert.deepEqual([status['mode'], status['state']], ['secondary', 'stream-wals'])
    assert.match((await run(b, 'join', issued.stdout, b.keys.token)).stderr, /is already a DR secondary: /)
  })

  await t.test('a role change that cannot succeed changes nothing', async () => {
    assert.match((await switched(a, b)).stderr, /is sealed: run "outpost operator unseal" there/)
    await b.unseal(a.keys)
    await eventually(async () => isProven(await a.status()), 'the secondary proves that it has the key')
    const few = await switched(a, b, '', `${a.keys.shares[0]}\n`)
    assert.match(few.stderr, /2 key shares are required, got 1/)
    assert.match(few.stderr, /The roles have not changed, http\S+ accepts writes/)
    assert.match((await switched(b, a)).stdout, /^Nothing to do: http\S+ is the primary, http\S+ follows it/)
    assert.match((await switched(a, a)).stderr, /OUTPOST_ADDR and -secondary are the same address/)
    const plain = await a.told('POST', 'auth/token/create', { policies: ['default'] })
    const weak = String((plain.body['auth'] as Record<string, unknown>)['client_token'])
    const unable = await run(a, `switch -secondary ${b.agent.url}`, shares, weak)
    assert.match(unable.stderr, /your token needs "update" and "sudo"/)
    assert.deepEqual([await a.health(), await b.health()], [200, 472])
  })

  await t.test('no acknowledged write is lost', async () => {
    const writer = new Writer(a, token)
    await eventually(() => writer.acknowledged.length > 20, 'writes go on')
    const done = await switched(a, b)
    assert.equal(done.code, 0, done.stderr)
    await writer.refused()
    assert.match(
      done.stderr,
      /is demoted: [^]* same entries at position \d+\n[^]* is promoted to primary of epoch \d+\n/,
    )
    assert.match(done.stdout, /^Success! http\S+ is the DR primary, http\S+ follows it/)
    for (const name of writer.acknowledged) await b.told('GET', `kv/data/${name}`, undefined, token)
    const [old, next] = [await a.status(), await b.status()]
    assert.deepEqual(
      [old['mode'], old['state'], next['mode'], next['state']],
      ['secondary', 'stream-wals', 'primary', 'running'],
    )
    assert.equal(next['fence_notice'], '', 'the old primary follows, it needs no notice')
    assert.equal(old['conflict_report'], '')
    assert.equal((await a.ask('GET', `${DR}/status`)).status, 200)
    const again = await switched(a, b)
    assert.deepEqual([again.code, again.stdout.startsWith('Nothing to do: ')], [0, true], again.stderr)
  })

  await t.test('the same command continues an interrupted role change', async () => {
    await eventually(async () => isProven(await b.status()), 'the old primary proves that it has the key')
    await b.told('POST', `${DR}/primary/demote`, { secondary_id: '127.0.0.1' }, token)
    const wrong = await switched(b, a, '', 'AAAA\nAAAA\n')
    assert.equal(wrong.code, 1)
    assert.match(wrong.stderr, /No server accepts writes\. The same command continues: it promotes http/)
    const done = await switched(b, a, ' -id=berlin')
    assert.equal(done.code, 0, done.stderr)
    assert.match(done.stderr, /is demoted already, no server accepts writes/)
    assert.deepEqual((await a.status())['known_secondaries'], ['berlin'])

    await eventually(async () => isProven(await a.status()), 'the old primary proves that it has the key')
    await a.told('POST', `${DR}/primary/demote`, { secondary_id: 'berlin' }, token)
    const operation = await b.operationToken(a.keys)
    await b.told('POST', `${DR}/secondary/promote`, { dr_operation_token: operation }, '')
    const joined = await switched(a, b)
    assert.equal(joined.code, 0, joined.stderr)
    assert.match(joined.stderr, /is the primary already: the switchover continues/)
    await a.follows(b)
  })

  await t.test('join connects a demoted primary to its new primary', async () => {
    const file = join(directory, 'shares.txt')
    writeFileSync(file, shares)
    await b.told('POST', `${DR}/primary/demote`, {}, token)
    const operation = await a.operationToken(a.keys)
    await a.told('POST', `${DR}/secondary/promote`, { dr_operation_token: operation }, '')
    const issued = await run(a, 'token b')
    const joined = await run(b, `join -shares-file ${file}`, issued.stdout)
    assert.equal(joined.code, 0, joined.stderr)
    await b.follows(a)
    const twice = await run(b, 'join -token-file - -shares-file -', issued.stdout)
    assert.equal(twice.code, 2)
  })

  await t.test('the status shows skew and the last heartbeat', async () => {
    const shown = /connected, \d+ entries behind, last heartbeat \ds ago, clock skew -?\d+m?s$/m
    await eventually(async () => shown.test((await run(a, 'status')).stdout), 'the primary shows its secondary')
    assert.match(
      (await run(b, 'status')).stdout,
      /^Primary +http\S+ connected, last heartbeat \ds ago, clock skew -?\d+m?s$/m,
    )
    assert.match((await run(b, 'status')).stdout, /^Lag \(time\) +\d+s$/m)
    const { stdout } = await run(a, 'status -json')
    const [row] = (JSON.parse(stdout) as { secondaries: Record<string, unknown>[] }).secondaries
    assert.match(String(row?.['last_heartbeat']), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
    assert.match(String(row?.['replication_primary_canary_age_ms']), /^\d+$/)
  })
})

function isProven({ secondaries }: Readonly<Record<string, unknown>>): boolean {
  return (
    Array.isArray(secondaries) && secondaries.some((one: { authenticated?: unknown }) => one.authenticated === true)
  )
}
