/**
 * A token that was revoked, has expired or has lost its policy, and whose holder goes on listening to an answer that it
 * got in time: each kind of endless answer, and reads with an end that are taken slowly, asked for at the host, through a server
 * and through another agent.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { type ClusterWorld, startCluster } from '../helpers/cluster.ts'
import { api, type Core, openCore, OPS_ACL, tokenWith } from '../helpers/cluster-core.ts'
import { follow, type Follower, followMessages } from '../helpers/follower.ts'
import { send } from '../helpers/openbao-replay.ts'
import { makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const LOGS = 'namespace "default" { capabilities = ["read-logs", "read-fs", "read-job", "list-jobs"] }'
const ALL = `${LOGS}\nnode { policy = "read" }\nagent { policy = "read" }`

/** Everything of this test in one cluster: hosts ask about tokens and check callers again every second. */
async function startWorld(t: TestContext): Promise<{ world: ClusterWorld; core: Core }> {
  const world = await startCluster(t, { here: ['server', 'client'], hosts: 2, acl: OPS_ACL, hostAcl: HOST_ACL })
  return { world, core: await openCore(world) }
}

/** Hosts ask a server about every token. */
const HOST_ACL = 'acl {\n enabled = true\n token_ttl = "1s"\n}'
const LATER = 'c1a57e00-0000-4000-8000-0000000000ff'
const MARKER = 'said-after-the-policy-was-changed'

let policies = 0

async function newToken(world: ClusterWorld, core: Core, text: string, more: object = {}) {
  const policy = { name: `follower-${++policies}`, text }
  const { client_token: token } = await tokenWith(world, core, policy, { no_parent: true, ...more })
  return { token, policy: policy.name }
}

/** What can be followed, and on which ports: that of the host, of a server and of another agent. */
function kinds(world: ClusterWorld) {
  const { allocId, member } = world.host(0)
  const [direct, server, agent] = [member.port, world.server().port, world.host(1).member.port]
  const logs = `/v1/client/fs/logs/${allocId}?task=web&type=stdout&follow=true`
  const monitor = `/v1/agent/monitor?log_level=trace&node_id=${member.nodeId}`
  return {
    logs: { path: logs, ports: { direct, server, agent } },
    stream: {
      path: `/v1/client/fs/stream/${allocId}?path=web/local/hello.txt&offset=0&follow=true`,
      ports: { direct, server, agent },
    },
    monitor: { path: monitor, ports: { direct, server, agent } },
    events: { path: '/v1/event/stream', ports: { server, agent } },
    jobLogs: { path: '/v1/job/web/logs?task=web&follow=true', ports: { server, agent } },
  }
}

type Kind = keyof ReturnType<typeof kinds>

async function followAll(t: TestContext, world: ClusterWorld, token: string, only?: readonly Kind[]) {
  const opening: Promise<Follower>[] = []
  for (const [kind, { path, ports }] of Object.entries(kinds(world))) {
    if (only && !only.some((name) => name === kind)) continue
    for (const [way, port] of Object.entries(ports)) {
      opening.push(follow(t, `${kind} ${way}`, { port, path, token }))
      if (kind === 'logs') opening.push(followMessages(t, `${kind} ${way} WebSocket`, { port, path, token }))
    }
  }
  return await Promise.all(opening)
}

const LARGE_BYTES = 1 << 30

function makeLarge({ allocId, member }: ReturnType<ClusterWorld['host']>): void {
  const directory = join(member.dataDir, 'alloc', allocId)
  for (const path of ['web/local/large.bin', 'alloc/logs/web.stderr.0']) {
    writeFileSync(join(directory, path), '')
    truncateSync(join(directory, path), LARGE_BYTES)
  }
}

/** Reads with an end, of a file that no caller gets through while this test lasts. */
async function readSlowly(t: TestContext, world: ClusterWorld, token: string): Promise<Follower[]> {
  const { allocId, member } = world.host(0)
  const [direct, server, agent] = [member.port, world.server().port, world.host(1).member.port]
  const reads = {
    cat: `/v1/client/fs/cat/${allocId}?path=web/local/large.bin`,
    readat: `/v1/client/fs/readat/${allocId}?path=web/local/large.bin&offset=0&limit=${LARGE_BYTES}`,
    logs: `/v1/client/fs/logs/${allocId}?task=web&type=stderr&plain=true`,
    jobLogs: `/v1/job/${allocId}/logs?task=web&type=stderr`,
  }
  const opening: Promise<Follower>[] = []
  for (const [kind, path] of Object.entries(reads)) {
    for (const [way, port] of Object.entries(kind === 'jobLogs' ? { server, agent } : { direct, server, agent })) {
      opening.push(follow(t, `${kind} ${way}`, { port, path, token, restMs: 20 }))
    }
  }
  return await Promise.all(opening)
}

/** How each ended, once all have. */
async function ends(followers: readonly Follower[]): Promise<Record<string, Follower['ended']>> {
  const left = () => followers.filter(({ ended }) => ended === undefined).map(({ name }) => name)
  await eventually(() => left().length === 0, 'every stream ends').catch((error: unknown) => {
    throw new Error(`still open: ${left().join(', ')}`, { cause: error })
  })
  return Object.fromEntries(followers.map(({ name, ended }) => [name, ended]))
}

/** Never a clean end: a WebSocket says 4403. */
function assertCut(ended: Readonly<Record<string, Follower['ended']>>): void {
  for (const [name, how] of Object.entries(ended)) {
    assert.equal(how, name.endsWith('WebSocket') ? 4403 : 'broken', `${name} ended as ${how}`)
  }
}

test('followers lose access with their token and policies', { timeout: 300_000 }, async (suite) => {
  const { world, core } = await startWorld(suite)
  makeLarge(world.host())
  // It lives through the other tests.
  const expiring = await newToken(world, core, ALL, { ttl: '15s', explicit_max_ttl: '15s' })
  const untilItExpires = await followAll(suite, world, expiring.token)

  await suite.test('a revoked token ends all its streams, and those of others continue', async (t) => {
    const { token } = await newToken(world, core, ALL)
    const other = await newToken(world, core, ALL)
    const followers = await followAll(t, world, token)
    assert.equal(followers.length, 16)
    const others = await followAll(t, world, other.token)
    await api(world, 'POST', 'auth/token/revoke', { token }, core.rootToken)
    const startMs = performance.now()
    assertCut(await ends(followers))
    t.diagnostic(`all ${followers.length} streams were broken after ${Math.round(performance.now() - startMs)} ms`)
    assert.deepEqual(
      others.filter(({ ended }) => ended !== undefined),
      [],
    )
  })

  await suite.test('a slow finite read ends when its token is revoked', async (t) => {
    const { token } = await newToken(world, core, ALL)
    const readers = await readSlowly(t, world, token)
    assert.equal(readers.length, 11)
    await api(world, 'POST', 'auth/token/revoke', { token }, core.rootToken)
    assertCut(await ends(readers))
    for (const { bytes, name } of readers) assert.ok(bytes < LARGE_BYTES, name)
  })

  await suite.test('a revoked policy ends the streams that need it, and others continue', async (t) => {
    const { token, policy } = await newToken(world, core, ALL)
    const lost = await followAll(t, world, token, ['logs', 'stream', 'jobLogs'])
    const kept = await followAll(t, world, token, ['monitor', 'events'])
    const less = 'node { policy = "read" }\nagent { policy = "read" }'
    await api(world, 'PUT', `sys/policies/acl/${policy}`, { policy: less }, core.rootToken)
    assertCut(await ends(lost))
    assert.deepEqual(
      kept.filter(({ ended }) => ended !== undefined),
      [],
    )
    // What still comes of the events is judged by the rights of now: allocations are not among them any more.
    const { member } = world.host()
    const { rootToken } = core
    makeAllocation(join(member.dataDir, 'alloc'), LATER)
    const headers = { 'X-Nomad-Token': rootToken }
    const path = `/v1/allocation/${LATER}`
    const known = async () => (await send(world.server().port, { method: 'GET', path, headers })).status === 200
    await eventually(known, 'the server knows the new allocation')
    const body = JSON.stringify({ NodeID: member.nodeId, Meta: { marker: MARKER } })
    const told = await send(world.server().port, { method: 'POST', path: '/v1/client/metadata', headers, body })
    assert.equal(told.status, 200)
    for (const { name, text } of kept.filter((each) => each.name.startsWith('events'))) {
      await eventually(() => text().includes(MARKER), `${name} goes on`)
      assert.ok(!text().includes(LATER), `${name} tells of an allocation`)
    }
  })

  await suite.test('a long poll is refused as soon as its token is revoked', async () => {
    const { token } = await newToken(world, core, ALL)
    const headers = { 'X-Nomad-Token': token }
    const path = `/v1/allocation/${world.host(1).allocId}`
    const waiting: Promise<number>[] = []
    for (const port of [world.server().port, world.host(0).member.port]) {
      const first = await fetch(`http://127.0.0.1:${port}${path}`, { headers })
      const index = first.headers.get('x-nomad-index')
      const next = fetch(`http://127.0.0.1:${port}${path}?index=${index}&wait=290s`, { headers })
      waiting.push(next.then(({ status }) => status))
    }
    await api(world, 'POST', 'auth/token/revoke', { token }, core.rootToken)
    assert.deepEqual(await Promise.all(waiting), [403, 403])
  })

  await suite.test('a stream uses one of five token uses, however often it is checked again', async (t) => {
    const { token } = await newToken(world, core, ALL, { num_uses: 5 })
    const { path, ports } = kinds(world).logs
    const usesLeft = async () => {
      const body = JSON.stringify({ token })
      const headers = { 'X-Vault-Token': core.rootToken }
      const { body: text } = await send(ports.server, {
        method: 'POST',
        path: '/v1/auth/token/lookup',
        headers,
        body,
      })
      return (JSON.parse(text) as { data: { num_uses: number } }).data.num_uses
    }
    const follower = await follow(t, 'logs server', { port: ports.server, path, token })
    const left = await usesLeft()
    const heard = follower.bytes
    // Some heartbeats, one a second, and a look at the token with each.
    await eventually(() => follower.bytes > heard + 12, 'heartbeats go on')
    assert.equal(follower.ended, undefined)
    assert.equal(await usesLeft(), left)
    await api(world, 'POST', 'auth/token/revoke', { token }, core.rootToken)
    assertCut(await ends([follower]))
  })

  await suite.test('an expired token ends its streams', async () => {
    assert.equal(untilItExpires.length, 16)
    assertCut(await ends(untilItExpires))
  })
})
