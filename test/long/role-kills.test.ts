/**
 * Three whole servers, a primary with two secondaries: both secondaries are promoted at once, and servers are killed in the middle of a
 * promotion and of a demotion. The suite has the same without processes in `test/dr/state`.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { workDirectory } from '../helpers/agent-process.ts'
import { type ClusterKeys, DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { Random } from '../helpers/frames.ts'
import { KILLED_IN_PROMOTION } from '../helpers/killed-in-promotion.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? Math.floor(Math.random() * 2 ** 31))
/** Attempts to kill a server in the middle of something, then it is left to end. */
const KILLS_MAX = Number(process.env['OUTPOST_ROLE_KILLS'] ?? 1)
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
  const [a, b, c] = await Promise.all(['a', 'b', 'c'].map((name) => DrServer.start(t, name, '', directory)))
  assert.ok(a && b && c)
  const world = { a, b, c, keys: a.keys, random: new Random(SEED) }
  await a.told('POST', `${DR}/primary/enable`)
  await a.told('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
  for (const one of [b, c]) {
    await one.told('POST', `${DR}/secondary/enable`, { token: await a.issue(one === b ? 'b' : 'c') })
    await one.follows(a)
    await one.unseal(a.keys)
  }
  await bothPromoted(t, world)
  await t.test('a server killed during a demotion recovers', () => killedInDemotion(world))
  await t.test('a server killed during a promotion recovers', () => killedInPromotion(world))
})

async function write({ keys }: World, server: DrServer, name: string, value = 'x') {
  return server.ask('POST', `kv/data/${name}`, { data: { value } }, keys.token)
}

async function written(world: World, server: DrServer, name: string, value?: string): Promise<void> {
  const { status, text } = await write(world, server, name, value)
  assert.equal(status, 200, text)
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
