/**
 * The shipped NATS configuration with keys from `outpost cluster keys`: agents and servers work with it, and the key of
 * one agent grants nothing on behalf of another one.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join, resolve } from 'node:path'
import { test, type TestContext } from 'node:test'
import { connect, nkeyAuthenticator, type NatsConnection, PermissionViolationError } from '@nats-io/transport-node'
import { workDirectory } from '../helpers/agent-process.ts'
import { connectAs, type PermittedCluster, permittedCluster, tlsOf, TOKEN } from '../helpers/permitted-cluster.ts'
import { INSIDE, makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const FIRST = '6f1c0b9e-2f0a-4a51-9d0c-0000000000a1'
const SECOND = '6f1c0b9e-2f0a-4a51-9d0c-0000000000a2'
const UNIT = resolve(import.meta.dirname, '../../systemd/nats/outpost-nats.service')
const noAnalyze = spawnSync('systemd-analyze', ['--version']).status === 0 ? false : 'needs systemd-analyze'
const NOTHING = new Uint8Array(0)

async function get(url: string, path: string): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${url}${path}`, { headers: { 'X-Nomad-Token': TOKEN } })
  return { status: answer.status, text: await answer.text() }
}

test('servers reach every agent, agents reach each other through servers, and tokens are resolved', async (t) => {
  const directory = workDirectory(t)
  const cluster = await permittedCluster(t, directory, ['-server', 's1', '-server', 's2', '-agent', 'w1'])
  if (!cluster) return t.skip('needs openssl')
  const servers = [await cluster.start('s1'), await cluster.start('s2')]
  makeAllocation(join(directory, 'w1/data/alloc'), FIRST)
  const first = await cluster.start('w1')
  // A host that comes later: only users.conf changes, and no connection is dropped.
  cluster.keys('-agent', 'w2', '-nats', 'tls://127.0.0.1:4222')
  makeAllocation(join(directory, 'w2/data/alloc'), SECOND)
  const second = await cluster.start('w2')
  for (const { url } of [...servers, first, second]) {
    for (const id of [FIRST, SECOND]) {
      const path = `/v1/client/fs/cat/${id}?path=web/local/hello.txt`
      await eventually(async () => (await get(url, path)).text === INSIDE, `${url} reads ${id}`)
    }
  }
  for (const { url } of servers) {
    for (const name of ['w1', 'w2']) {
      const { status } = await get(url, `/v1/client/metadata?node_id=${cluster.nodeIdOf(name)}`)
      assert.equal(status, 200)
    }
  }
  for (const { stderr } of [...servers, first, second]) {
    assert.ok(!stderr().includes('NATS server denied permission'), stderr())
    assert.ok(!stderr().includes('connection to NATS lost'), stderr())
  }
})

/** Subjects of these that the server refuses to this connection, in order. */
async function refusedOf(
  connection: NatsConnection,
  operation: 'publish' | 'subscribe',
  subjects: readonly string[],
): Promise<string[]> {
  const refused = new Set<string>()
  const watching = (async () => {
    for await (const status of connection.status()) {
      if (status.type === 'error' && status.error instanceof PermissionViolationError) refused.add(status.error.subject)
    }
  })()
  for (const subject of subjects) {
    if (operation === 'publish') connection.publish(subject, NOTHING)
    else connection.subscribe(subject, { callback: () => undefined })
  }
  // Errors come before the answer to what was said after.
  await connection.flush()
  await connection.flush()
  await connection.close()
  await watching
  return subjects.filter((subject) => refused.has(subject))
}

/** Subjects of high availability: the commit stream, the lease, and the requests of the members. */
const HA_SUBJECTS = [
  'outpost.global.ha.commits',
  'outpost.global.ha.changed',
  'outpost.global.ha.row.s1',
  'outpost.global.ha.copy.s1',
  '$KV.OUTPOST_global_HA.active',
]
const HA_STREAMS = ['OUTPOST_global_COMMITS', 'KV_OUTPOST_global_HA']
const requestsOf = (...requests: string[]) =>
  HA_STREAMS.flatMap((stream) => requests.map((request) => `$JS.API.${request}.${stream}`))

/** In this order: the last one removes a key. */
test('the key of a member grants what it needs', async (t) => {
  const cluster = await permittedCluster(t, workDirectory(t), ['-server', 's1', '-agent', 'w1', '-agent', 'w2'])
  if (!cluster) return t.skip('needs openssl')
  await t.test('an agent publishes as itself only and receives no message for others', () => agentMay(t, cluster))
  await t.test('a server may do what servers need, and publishes for no node', () => serverMay(t, cluster))
  await t.test('connections without a key, with an unknown key or with a removed key are refused', () =>
    needsAKey(t, cluster),
  )
})

async function agentMay(t: TestContext, cluster: PermittedCluster): Promise<void> {
  const [own, other] = [cluster.nodeIdOf('w1'), cluster.nodeIdOf('w2')]
  const root = 'outpost.global'
  const mayPublish = [
    `${root}.roster.${own}.state`,
    `${root}.server.s1.reply.${own}.c1`,
    `${root}.server.s1.call.${own}`,
    `${root}.server.s1.flow.${own}.c1`,
    `${root}.servers.ask.${own}`,
  ]
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 'w1'), 'publish', mayPublish), [])
  const mustNotPublish = [
    `${root}.roster.${other}.state`,
    `${root}.roster.${own}.state.more`,
    `${root}.server.s1.reply.${other}.c1`,
    `${root}.server.s1.reply.any.c1`,
    `${root}.server.s1.call.${other}`,
    `${root}.server.s1.core.${own}`,
    `${root}.server.s1.core.${other}`,
    `${root}.servers.key`,
    `${root}.servers.ask.${other}`,
    `${root}.server.s1.flow.${other}.c1`,
    `${root}.node.${other}.call`,
    `${root}.node.${other}.flow.c1`,
    `${root}.node.${other}.describe`,
    `${root}.node.${other}.reply.any.c1`,
    `${root}.node.${own}.call`,
    `${root}.node.${own}.reply.any.c1`,
    `outpost.elsewhere.roster.${own}.state`,
    '_INBOX.x',
    '$SYS.REQ.SERVER.PING',
    ...HA_SUBJECTS,
    ...requestsOf('STREAM.INFO', 'STREAM.MSG.GET', 'DIRECT.GET', 'STREAM.UPDATE'),
  ]
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 'w1'), 'publish', mustNotPublish), mustNotPublish)
  const maySubscribe = [
    `${root}.node.${own}.call`,
    `${root}.node.${own}.flow.*`,
    `${root}.node.${own}.describe`,
    `${root}.node.${own}.reply.*.*`,
    `${root}.servers.key`,
  ]
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 'w1'), 'subscribe', maySubscribe), [])
  const mustNotSubscribe = [
    '>',
    'outpost.>',
    `${root}.node.*.call`,
    `${root}.node.>`,
    `${root}.node.${other}.call`,
    `${root}.node.${other}.reply.*.*`,
    `${root}.server.>`,
    `${root}.server.*.call.*`,
    `${root}.server.*.core.*`,
    `${root}.server.s1.call.${other}`,
    `${root}.server.s1.call.${own}`,
    `${root}.servers.ask.*`,
    `${root}.server.s1.reply.*.*`,
    `${root}.server.s1.reply.${own}.*`,
    `${root}.server.*.flow.*.*`,
    `${root}.roster.*.*`,
    '_INBOX.>',
    '$SYS.>',
    `${root}.ha.>`,
    `${root}.ha.stored`,
    '$KV.>',
  ]
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 'w1'), 'subscribe', mustNotSubscribe), mustNotSubscribe)
}

async function serverMay(t: TestContext, cluster: PermittedCluster): Promise<void> {
  const id = cluster.nodeIdOf('w1')
  const root = 'outpost.global'
  const mustNot = [`${root}.roster.${id}.state`, `${root}.server.s2.reply.${id}.c1`, '$SYS.REQ.SERVER.PING']
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 's1'), 'publish', mustNot), mustNot)
  const mayPublish = [...HA_SUBJECTS, ...requestsOf('STREAM.INFO', 'STREAM.MSG.GET', 'STREAM.UPDATE')]
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 's1'), 'publish', mayPublish), [])
  const removals = requestsOf('STREAM.DELETE', 'STREAM.PURGE', 'STREAM.MSG.DELETE')
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 's1'), 'publish', removals), removals)
  const mustNotHear = ['>', `${root}.node.${id}.call`, `${root}.node.${id}.reply.*.*`, '$SYS.>']
  assert.deepEqual(await refusedOf(await connectAs(t, cluster, 's1'), 'subscribe', mustNotHear), mustNotHear)
}

async function needsAKey(t: TestContext, cluster: PermittedCluster): Promise<void> {
  const { nats } = cluster
  const tls = tlsOf(cluster)
  await assert.rejects(connect({ servers: [nats.url], tls, reconnect: false }), /Authorization/)
  const before = await connectAs(t, cluster, 'w1')
  const seed = cluster.seedOf('w1')
  cluster.keys('-remove', 'w1')
  // Connections with it are closed.
  await before.closed()
  const again = connect({ servers: [nats.url], tls, reconnect: false, authenticator: nkeyAuthenticator(seed) })
  await assert.rejects(again, /Authorization/)
}

test('systemd-analyze finds no fault and little exposure in the unit of the NATS server', { skip: noAnalyze }, () => {
  const { stdout, stderr, status } = spawnSync('systemd-analyze', ['verify', UNIT], { encoding: 'utf8' })
  assert.deepEqual([status, stdout, stderr], [0, '', ''])
  const judged = spawnSync('systemd-analyze', ['security', '--offline=true', '--threshold=15', UNIT])
  assert.equal(judged.status, 0)
})
