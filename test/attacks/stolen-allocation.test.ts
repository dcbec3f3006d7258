/**
 * A worker with a valid key claims the allocation of another worker to attract its calls: while the owner is ready, down
 * or restarting, after garbage collection and after a restart of the server. NATS has the shipped permissions, and the
 * attacker has everything that root of one worker host has.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { allocationOf } from '../helpers/fleet-server.ts'
import { HostileNode } from '../helpers/hostile-node.ts'
import { connectAs, permittedCluster, TOKEN } from '../helpers/permitted-cluster.ts'
import { isSaved } from '../helpers/saved-roster.ts'
import { INSIDE, makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const ALLOC = '6f1c0b9e-2f0a-4a51-9d0c-0000000000a1'
/** The attacker's own: while it is shown, its claims were looked at. */
const BAIT = '6f1c0b9e-2f0a-4a51-9d0c-0000000000b1'
const SAID_AGAIN_MS = 5000

test('a node that claims the allocation of another node does not get it', { timeout: 300_000 }, async (t) => {
  const directory = workDirectory(t)
  const cluster = await permittedCluster(t, directory, ['-server', 's1', '-agent', 'w1', '-agent', 'w2'])
  if (!cluster) return t.skip('needs openssl')
  const [w1, w2] = [cluster.nodeIdOf('w1'), cluster.nodeIdOf('w2')]
  let server = await cluster.start('s1')
  const allocation = makeAllocation(join(directory, 'w1/data/alloc'), ALLOC)
  let owner = await cluster.start('w1')
  const attacker = new HostileNode(await connectAs(t, cluster, 'w2'), w2)

  const get = (path: string, method = 'GET') =>
    fetch(`${server.url}${path}`, { method, headers: { 'X-Nomad-Token': TOKEN } })
  const nodeOf = async (id: string) => {
    const answer = await get(`/v1/allocation/${id}`)
    return answer.ok ? ((await answer.json()) as { NodeID: string }).NodeID : undefined
  }
  /** Undefined while the server does not know the node, as after a purge until it was heard again. */
  const statusOf = async (id: string) => {
    const answer = await get(`/v1/node/${id}`)
    return answer.ok ? ((await answer.json()) as { Status: string }).Status : undefined
  }
  const reads = async () => (await (await get(`/v1/client/fs/cat/${ALLOC}?path=web/local/hello.txt`)).text()) === INSIDE
  let tries = 0
  let claims = 0
  /** Claims it, and waits until the server has looked at that. */
  const steal = async () => {
    const name = `try-${++tries}`
    let saidMs = Number.NEGATIVE_INFINITY
    await eventually(async () => {
      // A server that has just started may not have subscribed yet: what it did not hear is said again.
      if (performance.now() - saidMs > SAID_AGAIN_MS) {
        saidMs = performance.now()
        claims++
        await attacker.claim(allocationOf(ALLOC), allocationOf(BAIT, { name }))
      }
      const answer = await get(`/v1/allocation/${BAIT}`)
      return answer.ok && ((await answer.json()) as { Name: string }).Name === name
    }, 'the claim was heard')
  }

  await eventually(reads, 'the server reads from the owner')
  await steal()
  assert.equal(await nodeOf(ALLOC), w1, 'while the owner is ready')
  assert.ok(await reads())

  owner.child.kill('SIGTERM')
  await owner.ended
  await eventually(async () => (await statusOf(w1)) === 'down', 'the owner is down')
  await steal()
  assert.equal(await nodeOf(ALLOC), w1, 'while the owner is down')
  await get(`/v1/client/fs/cat/${ALLOC}?path=web/local/hello.txt`)

  // A killed server may lose the last half second of its roster.
  const known = { nodes: [w1], allocations: [ALLOC] }
  await eventually(() => isSaved(join(directory, 's1/data'), known), 'the roster has the allocation')
  server.child.kill('SIGKILL')
  await server.ended
  server = await cluster.start('s1')
  assert.equal(await nodeOf(ALLOC), w1, 'the roster was loaded')
  await steal()
  assert.equal(await nodeOf(ALLOC), w1, 'after a restart of the server, while the owner is away')

  owner = await cluster.start('w1')
  await eventually(reads, 'the owner has it back with its first beat')
  await steal()
  assert.equal(await nodeOf(ALLOC), w1, 'after the owner has restarted')

  rmSync(allocation, { recursive: true })
  await eventually(async () => (await nodeOf(ALLOC)) === undefined, 'the owner does not report it any more')
  await steal()
  assert.equal(await nodeOf(ALLOC), undefined, 'what the owner has collected is not free')
  makeAllocation(join(directory, 'w1/data/alloc'), ALLOC)
  await eventually(reads, 'the owner may have it again')

  assert.equal(attacker.calls.length, 0, 'not one call reached the attacker')
  const said = server
    .stderr()
    .split('\n')
    .filter((line) => line.includes('node claimed an allocation of another node'))
  assert.equal(said.length, 1, 'said once a minute')
  for (const part of [ALLOC, w1, w2]) assert.ok(said[0]?.includes(part), said[0])
  const metrics = await (await get('/v1/metrics?format=prometheus')).text()
  const refused = Number(/outpost_roster_refused_total\{[^}]*reason="claim"[^}]*\} (\d+)/.exec(metrics)?.[1])
  assert.ok(refused >= 2 && refused <= claims, `${refused} refused claims of ${claims}`)

  // An operator decides otherwise: the owner is purged, and its allocations belong to the node that announces them next.
  owner.child.kill('SIGTERM')
  await owner.ended
  assert.equal((await get(`/v1/node/${w1}/purge`, 'PUT')).status, 200)
  await steal()
  assert.equal(await nodeOf(ALLOC), w2)
  // And back again, without a change on w1: its state is requested again once the false owner is purged.
  owner = await cluster.start('w1')
  await eventually(async () => (await statusOf(w1)) === 'ready', 'the owner is back')
  assert.equal(await nodeOf(ALLOC), w2, 'now the other one has announced it first')
  assert.equal((await get(`/v1/node/${w2}/purge`, 'PUT')).status, 200)
  await eventually(reads, 'the owner is asked again, and has it back')
})
