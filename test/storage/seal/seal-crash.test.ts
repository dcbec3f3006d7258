/**
 * A process that is killed at every step of every change of the seal, and at random times: the shares of the last response unseal, and all
 * entries are readable.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import type { SealSettings } from '../../../src/storage/seal/static-key.ts'
import { Seal } from '../../../src/storage/seal/seal.ts'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { Random } from '../../helpers/frames.ts'
import { copyDatabase, StepCopies } from '../../helpers/step-copies.ts'
import { steppedStore } from '../../helpers/stepped-store.ts'
import { changeSeal, type Said } from './seal-changes.ts'
import { asking, askingRecovery, FIRST, give, machineKey, SHAMIR } from '../barrier/seal-world.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const CRASHER = join(import.meta.dirname, 'seal-crasher.ts')
const RUNS = Number(process.env['CRASH_RUNS'] ?? 1)
const SEED = Number(process.env['OUTPOST_SEED'] ?? 5)

function parse(text: string): Said[] {
  return text
    .split('\n')
    .slice(0, -1)
    .map((line): Said => JSON.parse(line))
}

/** Opens the database as the next process would, and says what it finds. */
async function look<T>(path: string, then: (store: SqliteStore) => Promise<T>): Promise<T> {
  if (existsSync(path)) assert.deepEqual(checkDatabase(path), [])
  const store = await SqliteStore.open(path)
  try {
    return await then(store)
  } finally {
    await store.close()
  }
}

/** The first entry, when these shares open it; undefined when they do not. */
async function openedBy(
  store: SqliteStore,
  shares: readonly Buffer[],
  settings = SHAMIR,
): Promise<Barrier | undefined> {
  const barrier = new Barrier(store)
  const seal = new Seal(store, barrier, settings)
  const isOpen = await give(seal, shares).catch(() => false)
  seal.resetUnseal()
  if (!isOpen) return undefined
  assert.equal(barrier.get('sys/first')?.toString(), 'first entry')
  return barrier
}

interface Base {
  readonly path: string
  readonly shares: readonly Buffer[]
}

async function base(t: TestContext, settings: SealSettings): Promise<Base> {
  const path = join(temporaryDirectory(t), 'base.db')
  return look(path, async (store) => {
    const request = settings.type === 'shamir' ? asking(3, 2) : askingRecovery(3, 2)
    const { keys, recoveryKeys } = await new Seal(store, new Barrier(store), settings).initialise(request, FIRST)
    return { path, shares: [...keys, ...recoveryKeys].slice(0, 2) }
  })
}

/**
 * Changes the seal once, looks at what a kill at each step would leave and at the end, and kills one real process in the
 * middle. Returns how many steps there are.
 */
async function atEachStep(
  t: TestContext,
  name: string,
  { path, shares }: Base,
  check: (store: SqliteStore, said: readonly Said[]) => Promise<void>,
): Promise<number> {
  const directory = temporaryDirectory(t)
  const [changed, killed] = [join(directory, 'changed.db'), join(directory, 'killed.db')]
  if (path !== '') for (const copy of [changed, killed]) copyDatabase(path, copy)
  const hex = shares.map((share) => share.toString('hex'))
  const said: Said[] = []
  const copies = new StepCopies({ directory, name: 'changed.db', room: directory, said: () => [...said] })
  const real = await SqliteStore.open(changed)
  const store = steppedStore(real, () => copies.take())
  await changeSeal(name, { store, shares: hex, answered: (what) => said.push(what) })
  said.push({ over: true })
  const { steps } = copies
  copies.take()
  await real.close()
  for (const copy of copies.all) {
    await t.test(`${name}, step ${copy.step}`, () => look(copy.path, (left) => check(left, copy.said)))
  }
  const child = spawnSync(process.execPath, [CRASHER, killed, name, String(Math.ceil(steps / 2)), ...hex])
  assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
  const heard = parse(child.stdout.toString())
  await t.test(`${name}, killed by the system`, () => look(killed, (left) => check(left, heard)))
  return steps
}

test('init', async (t) => {
  const secret = randomBytes(32)
  const steps = await atEachStep(t, 'init', { path: '', shares: [secret] }, async (store, said) => {
    const seal = new Seal(store, new Barrier(store), SHAMIR)
    if (seal.status.initialised) assert.ok(await openedBy(store, [secret]))
    else {
      assert.ok(!said.some(({ made }) => made))
      const { keys } = await seal.initialise(asking(1, 1), FIRST)
      assert.ok(await openedBy(store, keys))
    }
  })
  assert.equal(steps, 3)
})

test('rekey', async (t) => {
  const before = await base(t, SHAMIR)
  for (const task of ['rekey', 'rekey verified']) {
    const steps = await atEachStep(t, task, before, async (store, said) => {
      const shares = said.flatMap(({ given }) => given ?? []).map((share) => Buffer.from(share, 'hex'))
      const counts = task === 'rekey' ? shares.length > 0 : said.some(({ verified }) => verified)
      const isOver = said.some(({ over }) => over)
      const [old, next] = [
        await openedBy(store, before.shares),
        shares.length > 0 && (await openedBy(store, shares.slice(1))),
      ]
      // The shares that are used first end the others, so only one of the two checks unseals unless both sets are valid.
      if (!counts) assert.ok(old ?? next, 'neither the previous nor the new shares unseal')
      if (isOver) assert.ok(!old && next, 'only the new ones open it')
      if (counts && !isOver) assert.ok(old ?? next)
    })
    assert.ok(steps >= 3, `${steps} steps`)
  }
})

test('after a rekey whose process ended after the response, the new shares unseal', async (t) => {
  const before = await base(t, SHAMIR)
  await atEachStep(t, 'rekey', before, async (store, said) => {
    const shares = said.flatMap(({ given }) => given ?? []).map((share) => Buffer.from(share, 'hex'))
    assert.ok(await openedBy(store, shares.length > 0 ? shares.slice(0, 2) : before.shares))
  })
})

test('rotate', async (t) => {
  const before = await base(t, SHAMIR)
  await atEachStep(t, 'rotate', before, async (store, said) => {
    const barrier = await openedBy(store, before.shares)
    assert.ok(barrier)
    if (said.some(({ written }) => written)) assert.equal(barrier.get('sys/second')?.toString(), 'second entry')
    await barrier.commit({ puts: [{ path: 'sys/third', value: Buffer.from('third') }], deletes: [] })
  })
})

async function unattended(store: SqliteStore, settings: SealSettings): Promise<boolean> {
  const barrier = new Barrier(store)
  const isOpen = await new Seal(store, barrier, settings).autoUnseal().catch(() => false)
  if (isOpen) assert.equal(barrier.get('sys/first')?.toString(), 'first entry')
  return isOpen
}

test('migrates from key shares to a static key, to another static key, and back', async (t) => {
  const shamir = await base(t, SHAMIR)
  const machine = await base(t, machineKey('key-1'))
  await atEachStep(t, 'to static', shamir, async (store, said) => {
    const [byMachine, byShares] = [
      await unattended(store, machineKey('key-1')),
      await openedBy(store, shamir.shares).then((barrier) => barrier !== undefined),
    ]
    assert.notEqual(byMachine, byShares, 'one of the two, and not both')
    if (said.some(({ moved }) => moved)) assert.ok(byMachine)
  })
  await atEachStep(t, 'other machine key', machine, async (store, said) => {
    const [first, second] = [await unattended(store, machineKey('key-1')), await unattended(store, machineKey('key-2'))]
    assert.notEqual(first, second)
    if (said.some(({ moved }) => moved)) assert.ok(second)
  })
  await atEachStep(t, 'to shamir', machine, async (store, said) => {
    const [byMachine, byShares] = [
      await unattended(store, machineKey('key-1')),
      await openedBy(store, machine.shares).then((barrier) => barrier !== undefined),
    ]
    assert.notEqual(byMachine, byShares)
    if (said.some(({ moved }) => moved)) assert.ok(byShares)
  })
})

test('killed at any time of rekeys, rotations and writes, the last valid shares unseal', async (t) => {
  let { path, shares } = await base(t, SHAMIR)
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const random = new Random(SEED)
  const copy = join(temporaryDirectory(t), 'random.db')
  copyDatabase(path, copy)
  path = copy
  for (let run = 0; run < RUNS; run++) {
    const hex = shares.map((share) => share.toString('hex'))
    const child = spawn(process.execPath, [CRASHER, path, 'everything', '0', ...hex])
    let text = ''
    child.stdout.on('data', (bytes: Buffer) => (text += bytes.toString()))
    const closed = once(child, 'close')
    await eventually(() => text.includes('count'))
    await delay(random.between(0, 200))
    child.kill('SIGKILL')
    assert.deepEqual(await closed, [null, 'SIGKILL'], 'it ended by itself')
    const said = parse(text)
    const written = said.findLast(({ count }) => count !== undefined)?.count ?? 0
    const candidates = said.flatMap(({ given }) => (given ? [given.slice(0, 2)] : [])).slice(-2)
    const sets = [...candidates.map((each) => each.map((share) => Buffer.from(share, 'hex'))), shares].slice(0, 3)
    const found = await look(path, async (store) => {
      for (const set of sets.toReversed()) {
        const barrier = await openedBy(store, set)
        if (!barrier) continue
        assert.ok(Number(barrier.get('sys/count')) >= written)
        return set
      }
      return undefined
    })
    assert.ok(found, `run ${run}: none of the last shares opens it`)
    shares = found
  }
})
