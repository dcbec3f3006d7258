/** Two servers with a secrets core in one region: refused, and reported where it happened all the same. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { Member } from '../helpers/cluster.ts'
import type { AgentHere } from '../helpers/agent-here.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { metricsOf, readinessOf } from '../helpers/exported-metrics.ts'
import { type NatsServer, startNatsServer } from '../helpers/nats-server.ts'
import { commandsAt, jsonOf } from '../helpers/secrets-server.ts'

const METRIC = 'outpost_secrets_cores_in_region'
const HINT = 'not initialized, next: outpost operator init'
const INIT = 'operator init -key-shares=1 -key-threshold=1'
const MESSAGE = 'several secrets cores in the region'

interface Server {
  readonly name: string
  readonly url: string
}

/** Only a server that is killed or frozen is a separate process. */
async function startServer(
  t: TestContext,
  nats: NatsServer,
  name: string,
  { more = '', isHere = true } = {},
): Promise<Member> {
  const member = await Member.make(t, name, {
    role: 'server',
    natsUrl: nats.url,
    acl: 'acl { enabled = false }',
    more,
    isHere,
  })
  await member.start()
  return member
}

async function initialise(t: TestContext, server: Server, line = INIT): Promise<string> {
  const run = commandsAt(server, workDirectory(t))
  const made = await jsonOf(run, line)
  const [key = ''] = made['unseal_keys_b64'] as string[]
  assert.equal((await run(`operator unseal ${key}`)).code, 0)
  return key
}

async function clusterIdOf({ url }: Server): Promise<string> {
  const status = (await (await fetch(`${url}/v1/sys/seal-status`)).json()) as { cluster_id?: string }
  assert.ok(status.cluster_id, JSON.stringify(status))
  return status.cluster_id
}

async function isInitialised({ url }: Server): Promise<boolean> {
  return ((await (await fetch(`${url}/v1/sys/init`)).json()) as { initialized: boolean }).initialized
}

const coresOf = async (server: Server) => (await metricsOf(server)).value(METRIC)
/** Metrics and readiness change with probes of some hundred milliseconds: faster polls only cost CPU. */
const becomes = (check: () => Promise<boolean>, what?: string) => eventually(check, what, undefined, 150)
const counts = (server: Server, count: number) =>
  becomes(async () => (await coresOf(server)) === count, `${server.name} counts ${count} cores`)
const conflictOf = async (server: Server) =>
  (await readinessOf(server)).warnings.find((warning) => warning.includes('secrets cores in region'))
const sealReasonOf = async (server: Server) => (await readinessOf(server)).checks['seal']?.reason ?? ''

async function requestInit({ url }: Server, more: object = {}) {
  const body = JSON.stringify({ secret_shares: 1, secret_threshold: 1, ...more })
  const response = await fetch(`${url}/v1/sys/init`, { method: 'PUT', body })
  const { errors } = (await response.json()) as { errors?: string[] }
  return { status: response.status, text: errors?.join() ?? '' }
}

test('a second initialization in a region is refused, and two cores are reported by every server', async (t) => {
  const nats = await startNatsServer(t)
  const [first, second, edge] = await Promise.all([
    startServer(t, nats, 'first'),
    startServer(t, nats, 'second'),
    startServer(t, nats, 'edge', { more: 'secrets = false' }),
  ])
  assert.equal(await sealReasonOf(first), HINT)
  await initialise(t, first)
  const firstId = await clusterIdOf(first)
  const run = commandsAt(second, workDirectory(t))

  await t.test('the hint of the second server names the core of the first', async () => {
    const reason = await eventually(async () => {
      const seen = await sealReasonOf(second)
      return seen !== HINT && seen
    }, 'the second server knows the core of the first')
    assert.match(reason, /^not initialized, server "first" has the secrets core .* server \{ secrets = false \}/)
    const status = await run('status')
    assert.equal(status.code, 2)
    assert.ok(status.stderr.includes(reason), status.stderr)
    assert.ok(!status.stderr.includes('operator init'), status.stderr)
    const read = await run('read secret/data/app')
    assert.equal(read.code, 1)
    assert.ok(read.stderr.includes(reason), read.stderr)
    assert.ok(!read.stderr.includes('operator init'), read.stderr)
  })

  await t.test('the initialization is refused and changes nothing', async () => {
    const refused = await requestInit(second)
    assert.equal(refused.status, 400)
    assert.match(refused.text, /server "first" of region "global" has an initialized secrets core/)
    for (const part of [firstId, 'server { secrets = false }', '-force']) {
      assert.ok(refused.text.includes(part), refused.text)
    }
    const ran = await run(INIT)
    assert.equal(ran.code, 1)
    assert.ok(ran.stderr.includes('server "first"'), ran.stderr)
    assert.equal(await isInitialised(second), false)
    // The core that exists is initialized already, regardless of the region.
    assert.match((await requestInit(first)).text, /initiali[sz]ed/)
    for (const server of [first, edge]) assert.equal(await coresOf(server), 1)
    for (const server of [first, second, edge]) assert.equal(await conflictOf(server), undefined)
  })

  await t.test('with -force the initialization succeeds, and every server reports both cores', async () => {
    await initialise(t, second, `${INIT} -force`)
    const secondId = await clusterIdOf(second)
    assert.notEqual(secondId, firstId)
    for (const server of [first, second, edge]) {
      await counts(server, 2)
      const conflict = (await conflictOf(server)) ?? ''
      for (const part of ['"first"', firstId, '"second"', secondId, 'server { secrets = false }']) {
        assert.ok(conflict.includes(part), `${server.name}: ${conflict}`)
      }
      await eventually(() => server.stderr.includes(MESSAGE), `${server.name} logs it`)
    }
    const status = await run('status')
    assert.match(status.stderr, /^warning: 2 secrets cores in region "global": .*"first"/m)
    assert.equal(status.code, 0, 'the server serves')
    assert.equal(first.stderr.split(MESSAGE).length, 2, 'once in ten minutes')
  })

  await t.test('a server that returns without its core ends the report', async () => {
    await second.stop()
    second.reconfigure((text) => text.replace(/server \{\n enabled = true/, '$&\n secrets = false'))
    await second.start()
    for (const server of [first, second, edge]) {
      await counts(server, 1)
      assert.equal(await conflictOf(server), undefined)
    }
    await eventually(() => first.stderr.includes('one secrets core in the region again'))
  })
})

test('a recently killed core prevents an initialization until its server returns without it', async (t) => {
  const nats = await startNatsServer(t)
  const [first, second] = await Promise.all([
    startServer(t, nats, 'first', { isHere: false }),
    startServer(t, nats, 'second'),
  ])
  await initialise(t, first)
  await becomes(async () => (await sealReasonOf(second)).includes('"first"'))
  await first.kill()
  assert.equal((await requestInit(second)).status, 400)
  // The hint follows who answers.
  await becomes(async () => (await sealReasonOf(second)) === HINT, 'the first server is gone')
  assert.equal((await requestInit(second)).status, 400)
  first.reconfigure((text) => text.replace(/server \{\n enabled = true/, '$&\n secrets = false'))
  await first.start()
  await becomes(async () => (await requestInit(second)).status === 200, 'the second server may have the core')
})

test('an initialization while NATS is disconnected requires -force', async (t) => {
  const nats = await startNatsServer(t)
  const server = await startServer(t, nats, 'only')
  await nats.kill()
  await becomes(async () => (await readinessOf(server)).checks['nats']?.state === 'failing')
  const refused = await requestInit(server)
  assert.equal(refused.status, 503)
  assert.match(refused.text, /not connected to NATS, so this server cannot check.*-force/)
  assert.equal(await isInitialised(server), false)
  assert.deepEqual(await requestInit(server, { force: true }), { status: 200, text: '' })
})

test('a sealed core counts, also for a server that starts later', async (t) => {
  const nats = await startNatsServer(t)
  const first = await startServer(t, nats, 'first')
  await initialise(t, first)
  const id = await clusterIdOf(first)
  await first.stop()
  await first.start()
  const second = await startServer(t, nats, 'second')
  await becomes(async () => (await sealReasonOf(second)).includes('"first"'))
  const refused = await requestInit(second)
  assert.equal(refused.status, 400)
  assert.ok(refused.text.includes(id), refused.text)
})

test('of a DR pair in one region one core counts and serves', async (t) => {
  const nats = await startNatsServer(t)
  const directory = workDirectory(t)
  const more = `\n}\nnats {\n servers = ["${nats.url}"]`
  const [primary, secondary] = await Promise.all([
    DrServer.startHere(t, 'a', more, directory),
    DrServer.startHere(t, 'b', more, directory),
  ])
  const both = () => [primary, secondary].map(({ agent: { url } }, at) => ({ name: 'ab'.charAt(at), url }))

  await t.test('a DR secondary in the region of its primary does not count as a second core', async () => {
    for (const server of both()) await counts(server, 2)
    await primary.told('POST', `${DR}/primary/enable`)
    await secondary.told('POST', `${DR}/secondary/enable`, { token: await primary.issue('b') })
    await secondary.follows(primary)
    for (const server of both()) {
      await counts(server, 1)
      assert.equal(await conflictOf(server), undefined)
    }
    await secondary.unseal(primary.keys)
  })

  await t.test(
    'requests for secrets and tokens go to the active core, not to the standby of a DR pair or a server without initialization',
    () => goToTheActiveCore(t, nats, primary, secondary),
  )

  await t.test('the sealed core of the primary counts', async () => {
    await primary.told('PUT', 'sys/seal')
    for (const server of both()) await counts(server, 1)
  })
})

async function goToTheActiveCore(
  t: TestContext,
  nats: NatsServer,
  primary: DrServer,
  secondary: DrServer,
): Promise<void> {
  await primary.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
  await primary.told('POST', 'kv/data/one', { data: { a: 1 } })
  await startServer(t, nats, 'blank')
  const common = { natsUrl: nats.url, isHere: true, acl: 'acl {\n enabled = true\n token_ttl = "0s"\n}' }
  const [edge, agent] = await Promise.all([
    Member.make(t, 'edge', { ...common, role: 'server', more: 'secrets = false' }),
    Member.make(t, 'agent', { ...common, role: 'client' }),
  ])
  await Promise.all([edge.start(), agent.start()])
  const headers = { 'X-Vault-Token': primary.keys.token }
  const statusesOf = async (url: string, path: string) => {
    const seen = new Map<string, number>()
    for (let left = 20; left > 0; left--) {
      const answer = await fetch(`${url}/v1/${path}`, { headers })
      const text = answer.ok ? '200' : `${answer.status} ${await answer.text()}`
      seen.set(text, (seen.get(text) ?? 0) + 1)
    }
    return Object.fromEntries(seen)
  }
  const coreOf = async () => (await readinessOf(edge)).checks['secrets_core']?.reason
  const named = await eventually(async () => {
    const text = await coreOf()
    return text?.endsWith('is active') && text
  }, 'the edge is ready')
  assert.match(named, /^the secrets core of server "[^"]+" is active$/, 'one server is named')
  assert.deepEqual(await statusesOf(edge.url, 'kv/data/one'), { 200: 20 })
  assert.deepEqual(await statusesOf(agent.url, 'client/stats'), { 200: 20 })
  const onStandby = await statusesOf(secondary.agent.url, 'nodes')
  assert.match(
    Object.keys(onStandby).join(),
    /^503 this server is a DR secondary and cannot verify tokens of its primary; /,
  )
}

test('a server without a core is ready only while a server with an active core answers', async (t) => {
  const nats = await startNatsServer(t)
  const [first, edge] = await Promise.all([
    startServer(t, nats, 'first', { isHere: false }),
    startServer(t, nats, 'edge', { more: 'secrets = false' }),
  ])
  const run = commandsAt(edge, workDirectory(t))
  const reports = async (reason: RegExp, status = 503) => {
    await becomes(async () => {
      const { checks, status: seen } = await readinessOf(edge)
      return seen === status && reason.test(checks['secrets_core']?.reason ?? '')
    }, `${status} ${reason}`)
    const isReady = status === 200
    assert.equal((await metricsOf(edge)).value('outpost_ready_check', { check: 'secrets_core' }), Number(isReady))
    const { code, stderr } = await run('status')
    if (!isReady) assert.match(stderr, new RegExp(`^not ready: secrets_core: ${reason.source}`, 'm'))
    if (isReady) assert.equal(code, 0, stderr)
    else assert.notEqual(code, 0)
  }
  const withoutCore = (await readinessOf(first)).checks['secrets_core']
  assert.equal(withoutCore, undefined, 'the server with the core has the check "seal"')
  await reports(/the secrets core of server "first" is not initialized, next: outpost operator init/)
  const key = await initialise(t, first)
  await reports(/the secrets core of server "first" is active/, 200)
  await first.stop()
  await reports(/no server with a secrets core is connected|the secrets core of server "first" does not respond/)
  await first.start()
  await reports(/the secrets core of server "first" is sealed, next: outpost operator unseal/)
  assert.equal((await commandsAt(first, workDirectory(t))(`operator unseal ${key}`)).code, 0)
  await reports(/is active/, 200)
  assert.match(edge.stderr, /"not ready".*secrets_core \(the secrets core of server/)
  await nats.kill()
  await reports(/not connected to NATS/)
  assert.equal((await readinessOf(edge)).checks['roster']?.reason, 'not connected to NATS')
  await nats.restart()
  await reports(/is active/, 200)
  first.signal('SIGSTOP')
  const frozen = await fetch(`${edge.url}/v1/sys/seal-status`)
  assert.deepEqual(
    [frozen.status, await frozen.json()],
    [504, { errors: ['server "first" does not respond, try again'] }],
  )
  await reports(/the secrets core of server "first" does not respond|no server with a secrets core is connected/)
  first.signal('SIGCONT')
  await reports(/is active/, 200)
})

test('a server without a core reports a fenced core, and not the standby of a DR pair', async (t) => {
  const nats = await startNatsServer(t)
  const directory = workDirectory(t)
  const withNats = `\n}\nnats {\n servers = ["${nats.url}"]`
  const [primary, secondary] = await Promise.all([
    DrServer.startHere(t, 'a', `replication {\n fence_after = "3s"\n }${withNats}`, directory),
    DrServer.startHere(t, 'b', withNats, directory),
  ])
  const edge = await startServer(t, nats, 'edge', { more: 'secrets = false' })
  const check = async () => (await readinessOf(edge)).checks['secrets_core']
  await primary.told('POST', `${DR}/primary/enable`)
  await secondary.told('POST', `${DR}/secondary/enable`, { token: await primary.issue('b') })
  await secondary.follows(primary)
  await secondary.unseal(primary.keys)
  await becomes(async () => (await check())?.state === 'ok', 'the primary is active')
  await (secondary.agent as AgentHere).stop()
  await becomes(
    async () => /is fenced: no heartbeat from a secondary for \d+ s/.test((await check())?.reason ?? ''),
    'fenced',
  )
  assert.equal((await readinessOf(edge)).status, 503)
})
