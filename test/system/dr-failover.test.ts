/** The whole way of a disaster between two clusters: the primary is killed, its secondary takes over, and they change back. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { OUTPOST, ROOT, start } from '../cli/outpost-process.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { metricsOf, readinessOf } from '../helpers/exported-metrics.ts'
import { commandsAt } from '../helpers/secrets-server.ts'

const TERMINAL = join(ROOT, 'test/helpers/terminal.py')
const MOUNT = { type: 'kv', options: { version: '2' } }

async function write(server: DrServer, name: string, value: string): Promise<void> {
  await server.told('POST', `kv/data/${name}`, { data: { value } }, token)
}

async function read(server: DrServer, name: string): Promise<unknown> {
  const { data } = await server.told('GET', `kv/data/${name}`, undefined, token)
  return (data['data'] as Record<string, unknown>)['value']
}

async function warningsOf({ agent }: DrServer): Promise<string> {
  return (await readinessOf(agent)).warnings.join('\n')
}

/** What a terminal shows on which both shares are typed, and then something else than the word that is asked for. */
async function declinedOnTerminal({ agent, directory }: DrServer, shares: readonly string[]): Promise<string> {
  const typed = [...shares, 'no'].map((line) => `${line}\r`).join('\u001e')
  const env = { ...process.env, TYPED: typed, OUTPOST_ADDR: agent.url, HOME: directory }
  const command = [TERMINAL, '200', '): ', OUTPOST, 'operator', 'dr', 'failover']
  const { stdout } = await start('python3', command, { env }).finished
  assert.ok(shares.every((share) => !stdout.includes(share)))
  return stdout.replaceAll('\r\n', '\n')
}

/** The root token of the first primary, which is valid on every server with its data. */
let token = ''

test('failover, re-join and failback succeed', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const [a, b] = await Promise.all([DrServer.start(t, 'a', '', directory), DrServer.startHere(t, 'b', '', directory)])
  token = a.keys.token
  const command = async (server: DrServer, line: string, input = '', as = token) => {
    const { code, stderr, stdout } = await commandsAt(server.agent, directory)(line, input, as)
    assert.equal(code, 0, `${line}: ${stderr}`)
    return { stderr, stdout }
  }
  await command(a, 'operator dr enable')
  const activation = (await command(a, 'operator dr token b')).stdout.trim()
  assert.match((await command(b, 'operator dr enable -', activation, b.keys.token)).stdout, /key shares of the primary/)
  await b.follows(a)
  await b.unseal(a.keys)
  await a.told('POST', 'sys/mounts/kv', MOUNT)
  await write(a, 'before', '1')
  const { auth } = (await a.told('POST', 'auth/token/create', { policies: ['root'], ttl: '1h' })).body as {
    auth: Record<string, string>
  }
  await b.follows(a)
  assert.equal(await b.health(), 472)
  const refused = await b.ask('GET', 'kv/data/before', undefined, token)
  assert.equal(refused.status, 400)
  assert.deepEqual(refused.errors, [
    'path disabled in replication DR secondary mode',
    `send the request to the primary, ${a.agent.url}`,
  ])

  const shown = await command(a, 'operator dr status')
  assert.match(shown.stdout, /^Mode +primary$/m)
  assert.match(
    shown.stdout,
    /^Secondary b +http\S+ connected, \d+ entries behind, last heartbeat \d+s ago, clock skew -?\d+m?s$/m,
  )
  const shares = `${a.keys.shares.join('\n')}\n`
  const failover = (server: DrServer, line = '-yes -', input = shares) =>
    commandsAt(server.agent, directory)(`operator dr failover ${line}`, input)
  const unconfirmed = await failover(b, '-')
  assert.equal(unconfirmed.code, 2)
  assert.match(unconfirmed.stderr, /confirmation requires a terminal: use -yes to promote without it/)
  assert.match((await failover(a)).stderr, /^outpost: .* is not a DR secondary \(mode "primary"\)/)
  const declined = await declinedOnTerminal(b, a.keys.shares)
  assert.match(declined, /is a DR secondary: connected to its primary, no lag at the last heartbeat/)
  assert.match(declined, /The primary http\S+ is running and will be fenced: .* "outpost operator dr switch"/)
  assert.match(declined, /not confirmed: the operation token was deleted, nothing was changed\n+exit code 1\n$/)
  assert.equal(await b.health(), 472)

  await a.kill()
  await eventually(async () => (await b.status())['state'] !== 'stream-wals', 'the primary is not heard')
  await eventually(() => b.agent.stderr().includes('replication from primary interrupted'), 'the log says so')
  const few = await failover(b, '-yes -', `${a.keys.shares[0]}\n`)
  assert.match(few.stderr, /2 key shares are required, got 1; the attempt was canceled, nothing was changed/)
  const done = await commandsAt(b.agent, directory)('operator dr failover -yes -', shares, token)
  assert.equal(done.code, 0, done.stderr)
  assert.match(
    done.stderr,
    /^1\. .* is a DR secondary: disconnected from its primary [^]*^2\. The secondary is unsealed[^]*^3\. The primary \S+ does not respond to this host/m,
  )
  assert.match(
    done.stderr,
    /^4\. Generated an operation token [^]*^5\. Promoted to primary of epoch 1 in \d+ ms\n[^]*^6\. Your token is valid on this server/m,
  )
  assert.match(done.stderr, /^7\. The old primary has not received the fence notice[^]*^8\. Next: redirect clients/m)
  assert.equal(await b.health(), 200)
  assert.equal(await read(b, 'before'), '1')
  await b.told('GET', 'auth/token/lookup-self', undefined, auth['client_token'])
  await write(b, 'during', '2')

  const unfenced = new RegExp(`old DR primary at ${a.agent.url} has not acknowledged that it was replaced`)
  await eventually(async () => unfenced.test(await warningsOf(b)), 'the old primary may serve again')
  assert.match((await command(b, 'operator dr status')).stdout, new RegExp(`^Warning .*${unfenced.source}`, 'm'))
  const isOwed = async () => (await metricsOf(b.agent)).value('outpost_replication_notice_owed')
  assert.equal(await isOwed(), 1)

  await a.restartHere()
  await eventually(
    async () => /claims to have replaced/.test(await warningsOf(a)),
    'the sealed primary reports the claim',
  )
  const sealed = (await command(a, 'operator dr status')).stdout
  assert.match(sealed, new RegExp(`^Trouble +a cluster at ${b.agent.url} claims to have replaced this primary`, 'm'))
  assert.match(sealed, /^Secondary b +http\S+ disconnected/m)
  assert.equal((await metricsOf(a.agent)).value('outpost_replication_connected'), 0)
  assert.match(
    (await readinessOf(a.agent)).checks['replication']?.reason ?? '',
    /^DR primary, 0 of 1 secondaries connected/,
  )

  assert.ok(a.agent.stderr().includes('a cluster claims to have replaced this primary'), 'the log says so')

  await a.unseal(a.keys)
  await eventually(async () => (await warningsOf(b)) === '', 'the old primary has acknowledged')
  await eventually(async () => (await isOwed()) === 0, 'and the metric says so')
  assert.doesNotMatch((await command(b, 'operator dr status')).stdout, unfenced)
  assert.doesNotMatch((await command(a, 'operator dr status')).stdout, /^Trouble/m)
  await eventually(async () => (await a.status())['state'] === 'fenced', 'the old primary learns of the new one')
  const late = await a.ask('POST', 'kv/data/late', { data: { value: 'x' } }, token)
  assert.equal(late.status, 503, late.text)
  const why = 'another cluster was promoted, this primary is fenced'
  await eventually(() => a.agent.stderr().includes(why), 'the log says why')
  await a.told('POST', `${DR}/primary/demote`, {}, token)
  assert.equal(await a.health(), 472)
  b.keys = { ...b.keys, token }
  const back = await a.operationToken(a.keys)
  const issued = await b.issue('a')
  await a.told('POST', `${DR}/secondary/update-primary`, { dr_operation_token: back, token: issued }, '')
  await a.follows(b)

  // A planned switch: nothing is lost, and both go on.
  await write(b, 'after', '3')
  await b.told('POST', `${DR}/primary/demote`, {}, token)
  await a.told('POST', `${DR}/secondary/promote`, { dr_operation_token: back }, '')
  const values = await Promise.all(['before', 'during', 'after'].map((name) => read(a, name)))
  assert.deepEqual(values, ['1', '2', '3'])
})
