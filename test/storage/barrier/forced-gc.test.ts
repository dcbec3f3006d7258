/** Used keys are not in the memory of the process once the ring is closed. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { closeSync, openSync, readFileSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { PerformanceObserver, constants } from 'node:perf_hooks'
import { type TestContext, test } from 'node:test'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { decrypt, encrypt } from '../../../src/storage/barrier/cipher.ts'
import { scheduleGc } from '../../../src/storage/barrier/forced-gc.ts'
import { Keyring } from '../../../src/storage/barrier/keyring.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const MASK = 0x5a
const STEP = 1 << 20

/** How often bytes are in the memory that can be written to, what looks for them aside. `masked` is not to be found itself. */
function copiesOf(masked: readonly number[]): number {
  const wanted = Buffer.from(masked.map((byte) => byte ^ MASK))
  const room = Buffer.alloc(STEP)
  const memory = openSync('/proc/self/mem', 'r')
  let found = 0
  for (const line of readFileSync('/proc/self/maps', 'utf8').split('\n')) {
    const [, from, to] = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(line) ?? []
    if (from === undefined || to === undefined) continue
    for (let at = BigInt(`0x${from}`); at < BigInt(`0x${to}`); at += BigInt(STEP)) {
      const left = BigInt(`0x${to}`) - at
      const length = readOr0(memory, room, left < STEP ? Number(left) : STEP, at)
      for (let hit = -1; (hit = room.subarray(0, length).indexOf(wanted, hit + 1)) >= 0; ) found++
      room.fill(0)
    }
  }
  closeSync(memory)
  wanted.fill(0)
  return found - 1
}

function readOr0(fd: number, into: Buffer, length: number, at: bigint): number {
  try {
    return readSync(fd, into, 0, length, at)
  } catch {
    return 0
  }
}

/** How many collections of all garbage were forced since this was called; Node's own are not. */
function forcedCollections(t: TestContext): () => number {
  let count = 0
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if ('detail' in entry && isForced(entry.detail)) count++
  })
  observer.observe({ entryTypes: ['gc'] })
  t.after(() => observer.disconnect())
  return () => count
}

function isForced(detail: unknown): boolean {
  if (typeof detail !== 'object' || detail === null || !('kind' in detail) || !('flags' in detail)) return false
  const { flags, kind } = detail
  return (
    kind === constants.NODE_PERFORMANCE_GC_MAJOR &&
    typeof flags === 'number' &&
    (flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) !== 0
  )
}

/** A ring whose key is returned masked, so that the plain key is only in the ring. */
function ringOfKnownKey(): { ring: Keyring; masked: number[] } {
  const key = randomBytes(32)
  const masked = [...key].map((byte) => byte ^ MASK)
  const text = JSON.stringify({ format: 1, keys: [{ term: 1, key: key.toString('base64'), installedAtMs: 0 }] })
  key.fill(0)
  return { ring: Keyring.decode(Buffer.from(text)), masked }
}

test('a used key is not in memory after its ring was closed', async (t) => {
  const { masked, ring } = ringOfKnownKey()
  for (let count = 0; count < 100; count++) {
    const sealed = encrypt('a/path', Buffer.from('plain'), ring.activeKey)
    assert.equal(decrypt('a/path', sealed, (term) => ring.key(term)).toString(), 'plain')
  }
  assert.ok(copiesOf(masked) > 0, 'it is found while it is there')
  ring.close()
  assert.throws(() => ring.activeKey, /closed/)
  assert.equal(ring.key(1), undefined)
  const forced = forcedCollections(t)
  scheduleGc()
  await eventually(() => forced() > 0, 'garbage is collected')
  assert.equal(copiesOf(masked), 0)
})

test('calls share a timer, and calls while it is pending share one further collection', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const timers = t.mock.method(globalThis, 'setTimeout')
  for (let count = 0; count < 3; count++) scheduleGc()
  assert.equal(timers.mock.callCount(), 1)
  t.mock.timers.tick(50)
  assert.equal(timers.mock.callCount(), 2)
  t.mock.timers.tick(50)
  assert.equal(timers.mock.callCount(), 2)
  scheduleGc()
  assert.equal(timers.mock.callCount(), 3)
  t.mock.timers.tick(50)
})

test('a seal frees memory once', async (t) => {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => store.close())
  let freed = 0
  const barrier = new Barrier(store, { scheduleGc: () => void freed++ })
  const rootKey = randomBytes(32)
  await barrier.initialise(rootKey)
  barrier.unseal(rootKey)
  assert.equal(freed, 0)
  barrier.seal()
  barrier.seal()
  assert.equal(freed, 1)

  const forced = forcedCollections(t)
  const usual = new Barrier(store)
  usual.unseal(rootKey)
  usual.seal()
  await eventually(() => forced() > 0, 'garbage is collected')
})
