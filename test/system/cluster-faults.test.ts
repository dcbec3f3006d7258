/**
 * Nodes, servers and NATS are killed, frozen, restarted and partitioned: which errors a caller sees, and when. One
 * cluster goes through all faults in sequence, with short heartbeats and timeouts.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { cpSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { allocIdOf, answers, type ClusterWorld, type Host, Member, startCluster } from '../helpers/cluster.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { ask } from '../helpers/raw-http.ts'
import { quietPort } from '../helpers/quiet-port.ts'
import { isSaved } from '../helpers/saved-roster.ts'
import { TailClient } from '../helpers/tail-client.ts'
import { makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

/** Members that are neither killed nor frozen are in this process. */
const OPEN = { role: 'client', acl: 'acl { enabled = false }', isHere: true } as const

const listPath = (host: Host) => `/v1/client/fs/ls/${host.allocId}`

function follow(world: ClusterWorld, host: Host, how: { plain: boolean; at?: number }): TailClient {
  const path = `/v1/client/fs/logs/${host.allocId}?task=web&type=stdout&follow=true&origin=start&plain=${how.plain}`
  return new TailClient(`${world.server(how.at).url}${path}`, { framed: !how.plain })
}

function clusterOf(port: number, routes: string): string {
  return `cluster { name: "parted", listen: "127.0.0.1:${port}", no_advertise: true${routes} }`
}

/** Streams of every kind that do not end by themselves: framed, plain, and a file that is read slowly. */
async function streams(t: TestContext, world: ClusterWorld, host: Host): Promise<TailClient[]> {
  writeFileSync(join(host.logs, 'web.stdout.0'), 'a line\n')
  const big = join(host.directory, 'alloc/data/big')
  writeFileSync(big, 'not all of it is empty')
  truncateSync(big, 200 << 20)
  const cat = `${world.server().url}/v1/client/fs/cat/${host.allocId}?path=alloc/data/big`
  const large = new TailClient(cat, { framed: false, onData: () => undefined })
  await large.open()
  large.pause()
  const all = [follow(world, host, { plain: false }), follow(world, host, { plain: true }), large]
  for (const client of all) await client.until(({ bytes }) => bytes > 0)
  t.after(() => all.forEach((client) => client.destroy()))
  return all
}

async function allBreak(clients: readonly TailClient[]): Promise<void> {
  for (const client of clients) client.resume()
  for (const client of clients) await client.until(({ ended }) => ended !== undefined)
  assert.deepEqual(
    clients.map(({ ended }) => ended),
    clients.map(() => 'broken'),
  )
}

/** Who answers for the node, asked twenty times: each has said it in its metadata. */
async function whoAnswers(world: ClusterWorld, nodeId: string): Promise<string[]> {
  const path = `/v1/client/metadata?node_id=${nodeId}`
  const all = await Promise.all(Array.from({ length: 20 }, () => ask(world.server().port, 'GET', path)))
  return [...new Set(all.map(({ status, body }) => (status === 200 ? JSON.parse(body.toString()).Meta.who : status)))]
}

async function setWho({ url, name }: Member): Promise<void> {
  const answer = await fetch(`${url}/v1/client/metadata`, {
    method: 'POST',
    body: JSON.stringify({ Meta: { who: name } }),
  })
  assert.equal(answer.status, 200)
}

test('faults of a cluster', { timeout: 300_000 }, async (suite) => {
  const world = await startCluster(suite, { servers: 2, hosts: 2, here: ['server-1'] })

  await suite.test('a killed node breaks its streams and is reported as down at once', async (t) => {
    const host = world.host()
    const clients = await streams(t, world, host)
    await host.member.kill()
    const asked = () => ask(world.server().port, 'GET', listPath(host))
    const first = await asked()
    // A call that NATS handed to the connection before it saw that it is closed gets no response.
    const gone = first.status === 504 ? await asked() : first
    assert.deepEqual([gone.status, gone.body.toString()], [404, 'No path to node'])
    await allBreak(clients)
    assert.equal((await ask(world.server().port, 'GET', listPath(world.host(1)))).status, 200)
    await host.member.start()
    await answers(world.server().port, host.allocId)
  })

  await suite.test(
    'calls to a frozen node fail and its streams break, and calls succeed when it resumes',
    async (t) => {
      const host = world.host()
      const clients = await streams(t, world, host)
      host.member.signal('SIGSTOP')
      const waiting = fetch(`${world.server().url}${listPath(host)}`)
      const meanwhile = await ask(world.server().port, 'GET', listPath(world.host(1)))
      assert.equal(meanwhile.status, 200)
      await allBreak(clients)
      const answer = await waiting
      assert.deepEqual([answer.status, await answer.text()], [504, 'the node does not respond, try again'])
      host.member.signal('SIGCONT')
      await answers(world.server().port, host.allocId)
    },
  )

  await suite.test('streams break when NATS is killed, and its restart requires no other restart', async (t) => {
    const host = world.host()
    const clients = await streams(t, world, host)
    await world.nats.kill()
    // The first call may still find the connection open, and no answer.
    await untilAsked('no connection', async () => {
      const during = await ask(world.server().port, 'GET', listPath(host))
      return during.status === 503 && during.body.toString() === 'not connected to NATS, try again'
    })
    await allBreak(clients)
    // A node that starts without NATS registers once NATS is reachable.
    const late = await Member.make(t, 'late', { ...OPEN, natsUrl: world.nats.url })
    await late.start()
    await world.nats.restart()
    await world.settled()
    const path = `/v1/client/metadata?node_id=${late.nodeId}`
    for (const { port } of world.servers) {
      await untilAsked('the late one answers', async () => (await ask(port, 'GET', path)).status === 200)
    }
  })

  await suite.test(
    'a restarted server shows its stored roster at once and is complete after one heartbeat',
    async (t) => {
      const nodes = world.hosts.map(({ member }) => member.nodeId)
      await eventually(() => isSaved(world.server().dataDir, { nodes }), 'the server has written what it knows')
      await world.server().kill()
      await world.host(1).member.kill()
      const newcomer = await Member.make(t, 'newcomer', { ...OPEN, natsUrl: world.nats.url })
      await newcomer.start()
      await world.server().start()
      assert.deepEqual((await namesAt(world.server())).slice(0, 2), ['client-0', 'client-1'])
      await untilAsked('the newcomer is known', async () => (await namesAt(world.server())).includes('newcomer'))
      assert.equal((await ask(world.server().port, 'GET', listPath(world.host()))).status, 200)
      assert.equal((await ask(world.server().port, 'GET', listPath(world.host(1)))).body.toString(), 'No path to node')
    },
  )

  await suite.test(
    'of two processes with a copied state directory one owns the node, and the other is refused until it stops',
    async (t) => {
      const { member, allocId } = world.host()
      await setWho(member)
      const dataDir = temporaryDirectory(t)
      cpSync(join(member.dataDir, 'client'), join(dataDir, 'client'), { recursive: true })
      const copy = await Member.make(t, 'copy', { ...OPEN, natsUrl: world.nats.url, dataDir })
      await copy.start()
      await setWho(copy)
      assert.equal(copy.nodeId, member.nodeId)
      await eventually(() => /duplicate node ID.*same key/.test(member.stderr), 'the first one logs the duplicate')
      assert.deepEqual(await whoAnswers(world, member.nodeId), ['copy'])
      await copy.stop()
      // Its next heartbeat shows that no other process exists.
      await answers(world.server().port, allocId)
      assert.deepEqual(await whoAnswers(world, member.nodeId), ['client-0'])
    },
  )

  await suite.test('of two nodes with one node ID the first registered one keeps it', async (t) => {
    const { member, allocId } = world.host()
    await setWho(member)
    const other = await Member.make(t, 'other', { ...OPEN, natsUrl: world.nats.url, nodeId: member.nodeId })
    await other.start()
    await setWho(other)
    await eventually(
      () => /duplicate node ID.*has registered the node ID with another key/.test(other.stderr),
      'the second one logs the duplicate',
    )
    assert.match(world.server().stderr, /duplicate node ID, message with another key rejected/)
    assert.deepEqual(await whoAnswers(world, member.nodeId), ['client-0'])
    await answers(world.server().port, allocId)
  })
})

test('during a partition between two NATS servers each side serves the nodes that it reaches, and all of them afterwards', {
  timeout: 240_000,
}, async (t) => {
  const [portA, portB] = [await quietPort(), await quietPort()]
  const joined = clusterOf(portB, `, routes: ["nats://127.0.0.1:${portA}"]`)
  const [left, right] = [await startNatsServer(t, clusterOf(portA, '')), await startNatsServer(t, joined)]
  const make = (name: string, role: 'server' | 'client', natsUrl: string) =>
    Member.make(t, name, { ...OPEN, role, natsUrl })
  const servers = [await make('left', 'server', left.url), await make('right', 'server', right.url)]
  const agents = [await make('left agent', 'client', left.url), await make('right agent', 'client', right.url)]
  for (const [at, { dataDir }] of agents.entries()) makeAllocation(join(dataDir, 'alloc'), allocIdOf(at))
  await Promise.all([...servers, ...agents].map((member) => member.start()))
  const everything = async () => {
    for (const { port } of servers) for (const at of agents.keys()) await answers(port, allocIdOf(at))
  }
  await everything()
  const [near, far] = [0, 1].map(
    (at) => new TailClient(`${servers[0]?.url}/v1/client/fs/logs/${allocIdOf(at)}?task=web&type=stdout&follow=true`),
  )
  assert.ok(near && far)
  for (const client of [near, far]) await client.until(({ bytes }) => bytes > 0)
  right.reload(clusterOf(portB, ''))
  await far.until(({ ended }) => ended === 'broken')
  for (const [at, { port }] of servers.entries()) {
    await answers(port, allocIdOf(at))
    const across = await ask(port, 'GET', `/v1/client/fs/ls/${allocIdOf(1 - at)}`)
    assert.deepEqual([across.status, across.body.toString()], [404, 'No path to node'])
  }
  assert.equal(near.ended, undefined)
  near.destroy()
  right.reload(joined)
  await everything()
})

async function namesAt({ port }: Member): Promise<string[]> {
  const { body } = await ask(port, 'GET', '/v1/nodes')
  const nodes: { Name: string }[] = JSON.parse(body.toString())
  return nodes.map(({ Name }) => Name).toSorted()
}

/** Asks until it is so; a call that fails is one more try. */
async function untilAsked(what: string, check: () => Promise<boolean>): Promise<void> {
  await eventually(() => check().catch(() => false), what)
}
