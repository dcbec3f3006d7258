/** What decides about the role of a primary's store, in the moments in which two of them come together. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Fencing } from '../../../src/dr/primary/fencing.ts'
import { TIMINGS } from '../../../src/dr/state/replication-context.ts'
import { ReplicationState } from '../../../src/dr/state/replication-state.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { recordingLogger } from '../../helpers/recording-logger.ts'
import { SETTINGS } from '../../helpers/replication-site.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const FENCE_AFTER_MS = 1000
const BUSY = { reason: 'busy' }

/** A primary's store and state, whose commits may be held back, and what was heard of secondaries as the test says. */
async function fencedPrimary(t: TestContext) {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => store.close())
  const state = new ReplicationState(store)
  await state.change(() => ({ mode: 'primary' }))
  /** Each role that the store was given. */
  const roles: string[] = []
  const setRole = store.setRole.bind(store)
  store.setRole = async (role, epoch) => {
    await setRole(role, epoch)
    roles.push(role)
  }
  let looks = 0
  const heard = { silenceMs: 0 }
  const primary = {
    get silenceMs() {
      looks++
      return heard.silenceMs
    },
    deposed: () => undefined,
    onHeard: () => undefined,
  }
  const fencing = new Fencing({
    store,
    state,
    logger: recordingLogger([]),
    settings: { ...SETTINGS, fenceAfterMs: FENCE_AFTER_MS },
    times: { ...TIMINGS, heartbeatMs: 5 },
    primary: () => primary,
    transition: {
      toSecondary: () => Promise.resolve(),
      wiped: () => Promise.resolve(),
      beforePrimary: () => Promise.resolve(),
      toPrimary: () => Promise.resolve(),
      fenced: () => Promise.resolve(),
    },
  })
  t.after(() => fencing.stop())
  fencing.start()
  const silent = async () => {
    heard.silenceMs = 2 * FENCE_AFTER_MS
    await eventually(() => store.role === 'fenced' && state.now.witnessEpoch !== undefined, 'it stops for silence')
    roles.length = 0
  }
  /** Holds commits back until `release`. */
  const hold = () => {
    const commit = store.commit.bind(store)
    const [held, asked] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    store.commit = (batch) => {
      asked.resolve()
      return held.promise.then(() => commit(batch))
    }
    return { release: held.resolve, asked: asked.promise }
  }
  /** The watch for silence has had its chances. */
  const looked = async () => {
    const before = looks
    let ticks = 0
    await eventually(() => looks > before + 2 || ticks++ > 20, 'it is looked')
  }
  return { store, state, fencing, heard, roles, silent, hold, looked }
}

test('a fence is written after the proof of its epoch: a primary that is killed in between stays consistent', async (t) => {
  const { fencing, state, store } = await fencedPrimary(t)
  const proven: (number | undefined)[] = []
  const setRole = store.setRole.bind(store)
  store.setRole = async (role, epoch) => {
    if (role === 'fenced') proven.push(state.now.provenEpoch)
    await setRole(role, epoch)
  }
  await fencing.depose({ epoch: 3, addresses: ['heir:1'], api: 'http://heir' })
  assert.deepEqual([proven, store.epoch], [[3], 3])
})

test('the end of silence does not lift the fence of a primary that is being deposed', async (t) => {
  const { fencing, heard, hold, looked, roles, silent, state, store } = await fencedPrimary(t)
  await silent()
  // The notice of an heir that has counted no further than this one: a snapshot was restored here.
  const { release } = hold()
  const deposing = fencing.depose({ epoch: store.epoch, addresses: ['heir:1'], api: 'http://heir' })
  heard.silenceMs = 0
  await looked()
  release()
  await deposing
  await looked()
  assert.ok(!roles.includes('own'), `its roles were ${roles.join(', ')}`)
  assert.equal(store.role, 'fenced')
  assert.equal(state.now.deposed?.api, 'http://heir')
})

test('an acknowledged notice does not lift the fence of a primary that is being deposed, nor that of silence', async (t) => {
  const { fencing, heard, hold, roles, silent, state, store } = await fencedPrimary(t)
  await silent()
  await fencing.raiseEpochAbove(4)
  assert.equal(store.epoch, 5)
  assert.equal(store.role, 'fenced', 'no secondary was heard')
  assert.equal(state.now.forks.at(-1)?.epoch, 5)
  heard.silenceMs = 0
  await eventually(() => store.role === 'own', 'one is heard')
  roles.length = 0
  const { release } = hold()
  const deposing = fencing.depose({ epoch: 6, addresses: ['heir:1'], api: 'http://heir' })
  const rising = fencing.raiseEpochAbove(6)
  release()
  await Promise.all([deposing, rising])
  assert.ok(!roles.includes('own'), `its roles were ${roles.join(', ')}`)
  assert.equal(store.role, 'fenced')
  assert.equal(store.epoch, 6)
})

test('the epoch rises above an equal epoch of the replaced primary, and not for a lower one', async (t) => {
  const { fencing, state, store } = await fencedPrimary(t)
  const epoch = store.epoch + 1
  await store.setRole('own', epoch)
  await fencing.raiseEpochAbove(epoch - 1)
  assert.deepEqual([store.epoch, state.now.forks], [epoch, []])
  await fencing.raiseEpochAbove(epoch)
  assert.equal(store.epoch, epoch + 1)
  assert.deepEqual(
    state.now.forks.map((fork) => fork.epoch),
    [epoch + 1],
  )
})

test('a primary that becomes a secondary is not fenced by an earlier decision', async (t) => {
  const { fencing, heard, hold, state, store } = await fencedPrimary(t)
  const { asked, release } = hold()
  heard.silenceMs = 2 * FENCE_AFTER_MS
  await asked
  const stopped = fencing.stop()
  release()
  await stopped
  await store.setRole('replica')
  const rival = { epoch: 9, addresses: [], api: '' }
  await assert.rejects(fencing.depose(rival), BUSY, 'it is not taken as done')
  await eventually(() => state.now.witnessEpoch !== undefined)
  // Everything in progress until then has completed.
  await store.markSeen()
  assert.equal(store.role, 'replica')
})

test('a decision during the stop of a primary is refused, so that the caller retries', async (t) => {
  const { fencing, hold, state, store } = await fencedPrimary(t)
  const rival = { epoch: 1, addresses: ['heir:1'], api: 'http://heir' }
  const { asked, release } = hold()
  const rising = fencing.raiseEpochAbove(3)
  await asked
  // These wait for their turn when the stop comes, the others come behind it.
  const waiting = [fencing.depose({ ...rival, epoch: 5 }), fencing.yieldToRival(rival), fencing.raiseEpochAbove(5)]
  const refused = Promise.all(waiting.map((decision) => assert.rejects(decision, BUSY)))
  const stopped = fencing.stop()
  release()
  await Promise.all([rising, stopped, refused])
  for (const decide of [
    () => fencing.depose({ ...rival, epoch: 5 }),
    () => fencing.yieldToRival(rival),
    () => fencing.raiseEpochAbove(5),
  ])
    await assert.rejects(decide, BUSY)
  assert.deepEqual([store.role, store.epoch, state.now.deposed], ['own', 4, undefined])
})

test('a primary that is being demoted acknowledges no notice', async (t) => {
  const { fencing, state, store } = await fencedPrimary(t)
  const heir = { epoch: 1, addresses: ['heir:1'], api: 'http://heir' }
  await state.change(() => ({ mode: 'secondary' }))
  await assert.rejects(fencing.depose(heir), BUSY)
  await state.change(() => ({ mode: 'primary' }))
  assert.equal(store.role, 'own')
  await fencing.depose(heir)
  assert.equal(store.role, 'fenced')
})
