/**
 * A process that is killed at every step of every way to revoke a tree of tokens: either nothing was changed or
 * acknowledged, or the next process refuses the whole tree at once and removes it soon after.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { StepCopies } from '../helpers/step-copies.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { isToken, lookup, make, tokenPathsIn, reopened } from './token-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const CRASHER = join(import.meta.dirname, 'token-crasher.ts')

interface Tree {
  readonly top: string
  readonly below: readonly string[]
  readonly beside: string
}

/** Two children of which one has forty, a token of a token, cubbyholes: several pages of everything. */
async function grow(world: CoreWorld): Promise<Tree> {
  const root = { policies: ['root'], ttl: '1h' }
  const top = (await make(world, { policies: ['root'], ttl: '2h', id: 'top' })).token
  const [one, two] = [(await make(world, root, top)).token, (await make(world, root, top)).token]
  const many = await Promise.all(Array.from({ length: 40 }, async () => (await make(world, root, one)).token))
  const deep = (await make(world, root, two)).token
  for (const token of [top, one, deep]) {
    for (const name of ['a', 'b/c']) await world.ask('PUT', `cubbyhole/${name}`, { x: 1 }, { token })
  }
  const beside = (await make(world, root)).token
  return { top, below: [one, two, ...many.slice(0, 5), deep], beside }
}

/** Asks once and looks at what a kill at each step of it leaves, and at what it leaves in the end. Returns how many steps. */
async function atEachStep(
  t: TestContext,
  ask: readonly [path: string, body: object],
  check: (world: CoreWorld, tree: Tree, answered: boolean) => Promise<void>,
): Promise<number> {
  const origin = await CoreWorld.open(t)
  const tree = await grow(origin)
  await origin.close()
  const directory = temporaryDirectory(t)
  const killed = join(directory, 'killed')
  cpSync(origin.directory, killed, { recursive: true })
  let isAnswered = false
  let isCounting = false
  const copies = new StepCopies({
    directory: origin.directory,
    name: 'secrets.db',
    room: directory,
    said: () => isAnswered,
  })
  const world = await reopened(t, origin, { wrap: (real) => steppedStore(real, () => isCounting && copies.take()) })
  await world.core.open.tokenExpiry.tick()
  isCounting = true
  assert.equal((await world.ask('POST', ...ask)).status, 204)
  isAnswered = true
  await eventually(() => world.core.barrier.paths('sys/token/revoking/').length === 0)
  isCounting = false
  const { steps } = copies
  copies.take()
  await world.close()
  const look = async (place: string, answered: boolean) => {
    assert.deepEqual(checkDatabase(join(place, 'secrets.db')), [])
    const next = await reopened(t, origin, { directory: place })
    await check(next, tree, answered)
    await next.close()
  }
  for (const { directory: place, said, step } of copies.all) {
    await t.test(`step ${step}`, () => look(place, said))
  }
  const args = [killed, origin.keys.unsealKey, origin.rootToken, ask[0], JSON.stringify(ask[1])]
  const child = spawnSync(process.execPath, [CRASHER, ...args, String(Math.ceil(steps / 2))])
  assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
  await t.test('killed by the system', () => look(killed, child.stdout.toString().includes('204')))
  return steps
}

/** Of tokens of the world itself: the root token, and the one beside the tree with what leads to it. */
const OTHERS = 2 + 5

test('the revocation of a tree survives a kill at any point', async (t) => {
  const seen = new Set<boolean>()
  const steps = await atEachStep(t, ['auth/token/revoke', { token: 'top' }], async (world, tree, answered) => {
    const isThere = await isToken(world, tree.top)
    seen.add(isThere)
    assert.ok(!(answered && isThere))
    for (const token of tree.below) assert.equal(await isToken(world, token), isThere)
    assert.ok(await isToken(world, tree.beside))
    if (isThere) return
    await world.core.open.tokenExpiry.tick()
    assert.equal(tokenPathsIn(world).length, OTHERS)
    assert.deepEqual(world.core.barrier.paths('logical/'), [])
  })
  assert.equal(seen.size, 2, 'before and after the one commit that counts')
  assert.ok(steps >= 18, `${steps} steps`)
})

test('the revocation of a token without its children survives a kill at any point', async (t) => {
  const seen = new Set<boolean>()
  const steps = await atEachStep(t, ['auth/token/revoke-orphan', { token: 'top' }], async (world, tree, answered) => {
    const isThere = await isToken(world, tree.top)
    seen.add(isThere)
    assert.ok(!(answered && isThere))
    for (const token of tree.below) assert.ok(await isToken(world, token))
    if (isThere) return
    const [one = ''] = tree.below
    await world.core.open.tokenExpiry.tick()
    assert.deepEqual(world.core.barrier.paths('sys/token/revoking/'), [])
    assert.equal((await lookup(world, one))['orphan'], true)
    assert.equal(world.core.barrier.paths('logical/').length, 4)
    assert.ok(!tokenPathsIn(world).some((path) => path.includes(world.core.open.tokens.hashOf(tree.top))))
  })
  assert.equal(seen.size, 2, 'before and after the one commit that counts')
  assert.ok(steps >= 12, `${steps} steps`)
})
