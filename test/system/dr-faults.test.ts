/**
 * Three whole servers, a primary with two secondaries, through faults: a clock that is wrong, a disk that is full, both secondaries
 * promoted at once, and a server that is killed in the middle of a promotion and of a demotion.
 */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { workDirectory } from '../helpers/agent-process.ts'
import { type ClusterKeys, DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { Random } from '../helpers/frames.ts'
import { KILLED_IN_PROMOTION } from '../helpers/killed-in-promotion.ts'
import { skewedBy } from '../helpers/skewed-clock.ts'
import { empty, fill, mountSmallDisk, unmount } from '../helpers/small-disk.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? Math.floor(Math.random() * 2 ** 31))
const HOUR_MS = 3_600_000
/** Less than what keeps a secondary from joining. */
const SKEW_MS = 200_000
/** Attempts to kill a server in the middle of something, then it is left to end. */
const KILLS_MAX = Number(process.env['OUTPOST_ROLE_KILLS'] ?? 1)
const DISK_MIB = 48
/** A server whose clock was ahead once does not believe an earlier time. */
const LONG = { ttl: '3h' }
const ANONYMOUS = ''

interface World {
  readonly a: DrServer
  readonly b: DrServer
  readonly c: DrServer
  /** Of the primary, whose data all of them have. */
  readonly keys: ClusterKeys
  readonly random: Random
}

test(`three servers recover from faults (OUTPOST_SEED=${SEED})`, { timeout: 500_000 }, async (t) => {
  const directory = workDirectory(t)
  const disk = join(directory, 'c')
  const isMounted = mountSmallDisk(disk, DISK_MIB)
  try {
    const [a, b, c] = await Promise.all([
      DrServer.start(t, 'a', '', directory),
      DrServer.start(t, 'b', '', directory),
      DrServer.start(t, 'c', '', directory, skewedBy(HOUR_MS)),
    ])
    const world = { a, b, c, keys: a.keys, random: new Random(SEED) }
    await a.told('POST', `${DR}/primary/enable`)
    await a.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
    await t.test('a clock skew of an hour prevents a join, and one of minutes is reported', () => skewed(world))
    await t.test('a full disk of a secondary delays no other, and it continues once there is space', (of) =>
      isMounted ? onFullDisk(world, disk) : of.skip('needs the right to mount'),
    )
    await bothPromoted(t, world)
    await t.test('a server killed during a demotion recovers', () => killedInDemotion(world))
    await t.test('a server killed during a promotion recovers', () => killedInPromotion(world))
  } finally {
    if (isMounted) unmount(disk)
  }
})

async function write({ keys }: World, server: DrServer, name: string, value = 'x') {
  return server.ask('POST', `kv/data/${name}`, { data: { value } }, keys.token)
}

async function written(world: World, server: DrServer, name: string, value?: string): Promise<void> {
  const { status, text } = await write(world, server, name, value)
  assert.equal(status, 200, text)
}

async function skewed(world: World): Promise<void> {
  const { a, b, c } = world
  const refused = await c.ask('POST', `${DR}/secondary/enable`, { token: await a.issue('c', LONG) })
  assert.equal(refused.status, 400, refused.text)
  assert.match(refused.text, /clocks of this cluster and of the primary differ by 3[56]\d\d s/)
  await c.told('GET', 'auth/token/lookup-self')
  await c.kill()
  c.env = skewedBy(SKEW_MS)
  await c.restart()
  await c.unseal(c.keys)
  await Promise.all(
    [b, c].map(async (one) => {
      const token = await a.issue(one === b ? 'b' : 'c', LONG)
      await one.told('POST', `${DR}/secondary/enable`, { token })
      await one.follows(a)
      await one.unseal(a.keys)
    }),
  )
  await eventually(async () => {
    const rows = (await a.status())['secondaries'] as Record<string, string>[]
    const skewMs = Number(rows.find(({ node_id: id }) => id === 'c')?.['clock_skew_ms'])
    return Math.abs(skewMs - SKEW_MS) < SKEW_MS / 2
  }, 'the skew is reported')
}

async function onFullDisk(world: World, disk: string): Promise<void> {
  const { a, b, c } = world
  try {
    await eventually(async () => {
      fill(disk)
      await written(world, a, `large/${world.random.between(1, 1e9)}`, 'x'.repeat(500_000))
      return /the disk of this secondary is full/.test(String((await c.status())['trouble']))
    }, 'the status says so')
    assert.ok(!JSON.stringify(await c.status()).includes(disk), 'no path of the machine')
    assert.equal(await c.health(), 472)
    await b.follows(a)
  } finally {
    empty(disk)
  }
  await c.follows(a)
}

/** Begins a promotion that the server does not survive. */
async function killInPromotion(server: DrServer, keys: ClusterKeys): Promise<void> {
  await server.kill()
  server.env = KILLED_IN_PROMOTION
  await server.restart()
  await server.unseal(keys)
  const dr_operation_token = await server.operationToken(keys)
  await assert.rejects(server.ask('POST', `${DR}/secondary/promote`, { dr_operation_token, force: true }, ANONYMOUS))
  await server.process.ended
  server.env = {}
}

async function bothPromoted(t: TestContext, world: World): Promise<void> {
  const { a, b, c, keys } = world
  let token = ''
  await t.test('a promotion that was killed after its first step is completed at unseal', async () => {
    await written(world, a, 'shared')
    await Promise.all([b.follows(a), c.follows(a)])
    token = await b.operationToken(keys)
    await a.kill()
    await killInPromotion(b, keys)
    await b.restart()
    // Sealed it cannot verify that the promotion was begun.
    assert.equal((await b.status())['mode'], 'secondary')
    await b.unseal(keys)
    assert.equal((await b.status())['mode'], 'primary')
    await written(world, b, 'of-b')
  })
  await t.test(
    'of two promoted secondaries the first to notify the old primary continues, and the other is fenced',
    async () => {
      const dr_operation_token = await c.operationToken(keys)
      await c.told('POST', `${DR}/secondary/promote`, { dr_operation_token }, ANONYMOUS)
      await written(world, c, 'of-c')
      assert.deepEqual([(await b.status())['epoch'], (await c.status())['epoch']], [1, 1])
      c.process.child.kill('SIGSTOP')
      await a.restart()
      // Sealed it cannot verify the notice; unsealed it has verified it before it serves.
      await a.unseal(keys)
      const late = await write(world, a, 'too-late')
      assert.equal(late.status, 503, late.text)
      await eventually(async () => (await b.status())['fence_notice'] === '', 'b has told it')
      c.process.child.kill('SIGCONT')
      await eventually(async () => (await c.status())['state'] === 'fenced', 'c is fenced')
      assert.equal((await c.status())['replaced_by'], b.agent.url)
      assert.equal((await a.status())['replaced_by'], b.agent.url)
      const lateToo = await write(world, c, 'too-late')
      assert.equal(lateToo.status, 503, lateToo.text)
      await written(world, b, 'goes-on')
      await Promise.all([a.kill(), c.kill()])
    },
  )
  await t.test('the operation token of a killed promotion is invalid, also after a return to secondary', async () => {
    await b.told('POST', `${DR}/primary/demote`, {}, keys.token)
    const dead = await b.ask('POST', `${DR}/secondary/promote`, { dr_operation_token: token }, ANONYMOUS)
    assert.equal(dead.status, 403, dead.text)
    const dr_operation_token = await b.operationToken(keys)
    await b.told('POST', `${DR}/secondary/promote`, { dr_operation_token }, ANONYMOUS)
  })
}

/** Kills it some time after the request has left; true when it was in the role by then. */
async function killedDuring(world: World, server: DrServer, path: string, body: object): Promise<void> {
  const token = path.endsWith('demote') ? world.keys.token : ANONYMOUS
  const asked = server.ask('POST', path, body, token).catch(() => undefined)
  await delay(world.random.between(0, 40))
  await server.kill()
  await asked
  await server.restart()
  await server.unseal(world.keys)
}

async function becomes(server: DrServer, mode: string): Promise<boolean> {
  return (await server.status())['mode'] === mode
}

async function killedInDemotion(world: World): Promise<void> {
  const { b } = world
  await written(world, b, 'before-demotion')
  const path = `${DR}/primary/demote`
  for (let at = 0; at < KILLS_MAX && (await becomes(b, 'primary')); at++) {
    await killedDuring(world, b, path, {})
    // It is one or the other, whole.
    if (await becomes(b, 'primary')) await written(world, b, `still-primary-${at}`)
  }
  if (await becomes(b, 'primary')) await b.told('POST', path, {}, world.keys.token)
  assert.equal((await b.status())['mode'], 'secondary')
  assert.equal(await b.health(), 472)
  assert.equal((await write(world, b, 'refused')).status, 400)
}

async function killedInPromotion(world: World): Promise<void> {
  const { b, keys } = world
  const dr_operation_token = await b.operationToken(keys)
  const path = `${DR}/secondary/promote`
  for (let at = 0; at < KILLS_MAX && (await becomes(b, 'secondary')); at++)
    await killedDuring(world, b, path, { dr_operation_token })
  // The token survives a restart as long as it has not been used.
  if (await becomes(b, 'secondary')) await b.told('POST', path, { dr_operation_token }, ANONYMOUS)
  assert.equal((await b.status())['mode'], 'primary')
  await eventually(async () => (await b.health()) === 200, 'it serves')
  for (const name of ['shared', 'of-b', 'goes-on', 'before-demotion'])
    await b.told('GET', `kv/data/${name}`, undefined, keys.token)
  await written(world, b, 'at-last')
}
