/** `outpost operator dr switch` with servers that must not change roles, and what it sends to the address in -secondary. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { type Answer, type EditingProxy, editingProxy } from '../helpers/editing-proxy.ts'
import { eventually } from '../helpers/eventually.ts'
import { commandsAt } from '../helpers/secrets-server.ts'

const STATUS = `GET ${DR}/status`
const HEALTH = 'GET sys/health'
/** Requests with key shares, an operation token or a token of the primary. */
const CHANGES = /^(?:PUT|POST|DELETE) /

const edited = (of: (data: Answer) => Answer) => (answer: Answer) => ({ ...answer, data: of(answer['data'] as Answer) })

function isConnected({ secondaries }: Readonly<Record<string, unknown>>): boolean {
  return (
    Array.isArray(secondaries) &&
    secondaries.some((one: Answer) => one['authenticated'] === true && one['is_whole'] === true)
  )
}

/** No token, no codes, no key shares. */
function receivedNothing({ asked }: EditingProxy): void {
  assert.ok(asked.length > 0, 'it was asked')
  for (const { body, headers, line } of asked) {
    assert.deepEqual([headers['x-vault-token'], headers['x-vault-mfa'], body], [undefined, undefined, ''], line)
    assert.doesNotMatch(line, CHANGES)
  }
}

test('dr switch refuses, and sends no credentials before the secondary is verified', {
  timeout: 180_000,
}, async (t) => {
  const directory = workDirectory(t)
  const a = await DrServer.startHere(t, 'a', '', directory)
  const b = await DrServer.startHere(t, 'b', '', directory)
  const stranger = await DrServer.startHere(t, 'c', '', directory)
  await a.told('POST', `${DR}/primary/enable`)
  await b.told('POST', `${DR}/secondary/enable`, { token: await a.issue('b') })
  await b.follows(a)
  await b.unseal(a.keys)
  await eventually(async () => isConnected(await a.status()), 'the secondary proves that it has the key')
  const { shares, token } = a.keys
  const switched = (from: { readonly url: string }, to: { readonly url: string }, more = '') =>
    commandsAt(from, directory)(`operator dr switch -secondary ${to.url}${more}`, `${shares.join('\n')}\n`, token)
  const unchanged = async (ran: { readonly code: number | null; readonly stderr: string }) => {
    assert.equal(ran.code, 1, ran.stderr)
    assert.match(ran.stderr, /The roles have not changed, http\S+ accepts writes/)
    assert.deepEqual([await a.health(), await b.health()], [200, 472])
  }

  await t.test('of different versions', async () => {
    const proxy = await editingProxy(t, b.agent.url)
    proxy.edits = { [HEALTH]: (answer) => ({ ...answer, outpost_version: 'v0.0.1' }) }
    const ran = await switched(a.agent, proxy)
    await unchanged(ran)
    assert.match(ran.stderr, /versions differ: http\S+ has v?\d+\.\d+\.\d+, http\S+ has v0\.0\.1; upgrade the older/)
    receivedNothing(proxy)
  })

  await t.test('with clocks that differ by more than 5 minutes, in both directions', async () => {
    const [primary, secondary] = [await editingProxy(t, a.agent.url), await editingProxy(t, b.agent.url)]
    for (const [skew, shown] of [
      ['400000', '6m40s'],
      ['-400000', '-6m40s'],
    ] as const) {
      const rows = (list: unknown) => (list as Answer[]).map((row) => ({ ...row, clock_skew_ms: skew }))
      primary.edits = { [STATUS]: edited((data) => ({ ...data, secondaries: rows(data['secondaries']) })) }
      const ran = await switched(primary, secondary)
      await unchanged(ran)
      assert.ok(ran.stderr.includes(`the clocks differ by ${shown} (limit 5m): correct them first`), ran.stderr)
      receivedNothing(secondary)
    }
  })

  await t.test('of another replication set', async () => {
    const proxy = await editingProxy(t, stranger.agent.url)
    const none = await switched(a.agent, proxy, ' -mfa=totp:123456')
    await unchanged(none)
    assert.match(none.stderr, /the servers do not belong to the same replication set/)
    receivedNothing(proxy)
    await stranger.told('POST', `${DR}/primary/enable`)
    const other = await switched(a.agent, proxy)
    assert.match(other.stderr, /the servers do not belong to the same replication set/)
    receivedNothing(proxy)
  })

  await t.test('the shares follow after the check, and the token after the promotion', async () => {
    const proxy = await editingProxy(t, b.agent.url)
    const done = await switched(a.agent, proxy)
    assert.equal(done.code, 0, done.stderr)
    assert.match(done.stderr, /Warning: the primary knows its secondary at http\S+, -secondary is http\S+: make sure/)
    const lines = proxy.asked.map(({ line }) => line)
    const promoted = lines.indexOf(`PUT ${DR}/secondary/promote`)
    assert.ok(promoted > lines.indexOf(`PUT ${DR}/secondary/generate-operation-token/update`))
    const withToken = proxy.asked.flatMap(({ headers }, at) => (headers['x-vault-token'] === undefined ? [] : [at]))
    assert.deepEqual(withToken, [lines.indexOf(`PUT ${DR}/primary/secondary-token`)])
    assert.ok((withToken[0] ?? 0) > promoted)
    assert.deepEqual([await a.health(), await b.health()], [472, 200])
  })
})
