/** Scheduled snapshots: verified before they count, bounded in number, never those of another cluster, and retried. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { createReadStream, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { DirectoryTarget } from '../../../src/storage/snapshot/scheduled/directory-target.ts'
import { S3Target } from '../../../src/storage/snapshot/scheduled/s3-target.ts'
import { SnapshotSchedule } from '../../../src/storage/snapshot/scheduled/snapshot-schedule.ts'
import {
  snapshotName,
  snapshotsAmong,
  type SnapshotTarget,
} from '../../../src/storage/snapshot/scheduled/snapshot-target.ts'
import { inspectSnapshot } from '../../../src/storage/snapshot/inspect.ts'
import { saveSnapshot } from '../../../src/storage/snapshot/snapshot.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { OBJECT_KEY, ObjectStore } from '../../helpers/aws/object-store.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { recordingLogger, type LogLine } from '../../helpers/recording-logger.ts'
import { empty, fill, mountSmallDisk, unmount } from '../../helpers/small-disk.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const HOUR_MS = 3_600_000
const START_MS = Date.UTC(2026, 0, 1)
const OTHER_CLUSTER = '0b8e1f6a-6a1b-4c1f-9d55-0f6a3c5b7e11'

async function openStore(t: TestContext, values = 50, bytes = 2000): Promise<SqliteStore> {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => store.close())
  const puts = Array.from({ length: values }, (_, at) => ({ path: `e/${at}`, value: randomBytes(bytes) }))
  await store.commit({ puts, deletes: [] })
  return store
}

interface World {
  readonly target: SnapshotTarget
  readonly store: SqliteStore
  /** The target of `OTHER_CLUSTER`, and the time since the start at which the store has this ID, as after a restore. */
  readonly other?: { readonly target: SnapshotTarget; readonly fromMs: number }
  readonly keep?: number
  readonly reason?: () => string | undefined
  /** Called before each pause with the time since the start. */
  readonly atMs?: (ms: number) => void
}

/** Runs a schedule with an interval of an hour for `forMs` of its clock, which moves only while the schedule pauses. */
async function run(t: TestContext, forMs: number, { atMs, keep = 3, other, reason, store, target }: World) {
  const lines: LogLine[] = []
  const clock = { ms: 0 }
  const over = Promise.withResolvers<undefined>()
  const saved = { count: 0 }
  const schedule = new SnapshotSchedule({
    intervalMs: HOUR_MS,
    keep,
    clusterId: () => (other && clock.ms >= other.fromMs ? OTHER_CLUSTER : store.clusterId),
    targetOf: (clusterId) => (other && clusterId === OTHER_CLUSTER ? other.target : target),
    source: (out, signal) => saveSnapshot(store, out, { signal }),
    reasonToSkip: reason ?? (() => undefined),
    clock: { nowMs: () => START_MS + clock.ms, monotonicMs: () => clock.ms },
    logger: recordingLogger(lines),
    onSaved: () => void saved.count++,
    pause: async (ms, signal) => {
      atMs?.(clock.ms)
      clock.ms += ms
      if (clock.ms <= forMs) return
      over.resolve(undefined)
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
    },
  })
  t.after(() => schedule.stop())
  schedule.start()
  await over.promise
  return { schedule, lines, saved }
}

const snapshotsIn = (directory: string) => readdirSync(directory).toSorted()

test('a snapshot is saved at once and at each interval, and the latest ones are kept', async (t) => {
  const store = await openStore(t)
  const directory = join(temporaryDirectory(t), 'not', 'there')
  const target = new DirectoryTarget(directory, store.clusterId)
  const { lines, saved, schedule } = await run(t, 5 * HOUR_MS, { store, target })
  assert.equal(saved.count, 6)
  const expected = [3, 4, 5].map((hour) => snapshotName(store.clusterId, START_MS + hour * HOUR_MS))
  assert.deepEqual(snapshotsIn(directory), expected)
  for (const name of expected) {
    const { meta } = await inspectSnapshot(createReadStream(join(directory, name)))
    assert.deepEqual([meta.clusterId, meta.entries], [store.clusterId, 50])
    assert.equal(statSync(join(directory, name)).mode & 0o777, 0o600)
  }
  assert.equal(statSync(directory).mode & 0o777, 0o700)
  assert.equal(schedule.status?.lastSavedAtMs, START_MS + 5 * HOUR_MS)
  assert.equal(schedule.status?.problem, undefined)
  const first = lines.find(({ message }) => message === 'scheduled snapshot saved')
  assert.deepEqual([first?.fields['target'], first?.fields['entries']], [directory, 50])
})

test('after a restore with another cluster ID a snapshot is saved at once', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const target = new DirectoryTarget(directory, store.clusterId)
  const other = { target: new DirectoryTarget(directory, OTHER_CLUSTER), fromMs: HOUR_MS / 2 }
  const { schedule } = await run(t, other.fromMs + 1, { store, target, other })
  const savedAtMs = START_MS + other.fromMs
  const expected = [snapshotName(store.clusterId, START_MS), snapshotName(OTHER_CLUSTER, savedAtMs)].toSorted()
  assert.deepEqual([snapshotsIn(directory), schedule.status?.lastSavedAtMs], [expected, savedAtMs])
})

test('after a restart the next snapshot is due an interval after the last one', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const target = new DirectoryTarget(directory, store.clusterId)
  // Half an hour old.
  writeFileSync(join(directory, snapshotName(store.clusterId, START_MS - HOUR_MS / 2)), '')
  const counts: number[][] = []
  const { schedule } = await run(t, HOUR_MS, {
    store,
    target,
    atMs: (ms) => counts.push([ms, snapshotsIn(directory).length]),
  })
  assert.deepEqual(counts.find(([, count]) => count === 2)?.[0], HOUR_MS / 2)
  await schedule.stop()
  // A clock that was set back: its later snapshot does not delay the next one.
  const later = temporaryDirectory(t)
  writeFileSync(join(later, snapshotName(store.clusterId, START_MS + 100 * HOUR_MS)), '')
  const { saved } = await run(t, HOUR_MS / 2, { store, target: new DirectoryTarget(later, store.clusterId) })
  assert.equal(saved.count, 1)
})

test('files of other clusters and of other programs are neither counted nor removed', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const foreign = [
    snapshotName(OTHER_CLUSTER, START_MS - HOUR_MS),
    `outpost-${store.clusterId}-notes.snap`,
    `outpost-${store.clusterId}-20259999T010203Z.snap`,
    'secrets.snap',
  ]
  for (const name of foreign) writeFileSync(join(directory, name), 'x')
  const { saved } = await run(t, 3 * HOUR_MS, {
    store,
    keep: 1,
    target: new DirectoryTarget(directory, store.clusterId),
  })
  assert.equal(saved.count, 4)
  const expected = [...foreign, snapshotName(store.clusterId, START_MS + 3 * HOUR_MS)]
  assert.deepEqual(snapshotsIn(directory), expected.toSorted())
})

test('nothing is saved where another server may save', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const target = new DirectoryTarget(directory, store.clusterId)
  const { lines, saved, schedule } = await run(t, 3 * HOUR_MS, { store, target, reason: () => 'DR secondary' })
  assert.deepEqual([saved.count, lines.length, schedule.status], [0, 0, undefined])
  assert.deepEqual(snapshotsIn(directory), [])
})

test('a full disk is reported and retried, and leaves no partial file', async (t) => {
  const store = await openStore(t, 200, 20_000)
  const disk = join(temporaryDirectory(t), 'disk')
  if (!mountSmallDisk(disk, 16)) return t.skip('no right to mount')
  try {
    await reportsFullDisk(t, disk, store)
  } finally {
    unmount(disk)
  }
})

async function reportsFullDisk(t: TestContext, disk: string, store: SqliteStore): Promise<void> {
  const directory = join(disk, 'snapshots')
  fill(disk)
  let isEmptied = false
  const during: (string | undefined)[] = []
  const { lines, saved, schedule } = await run(t, HOUR_MS, {
    store,
    target: new DirectoryTarget(directory, store.clusterId),
    atMs: (ms) => {
      during.push(...readdirSync(disk).filter((name) => name !== 'ballast' && name !== 'snapshots'))
      if (ms >= 120_000 && !isEmptied) {
        isEmptied = true
        empty(disk)
      }
    },
  })
  assert.deepEqual(during, [])
  const failed = lines.filter(({ message }) => message === 'scheduled snapshot failed, will retry')
  assert.deepEqual(
    failed.map(({ fields }) => fields['retry_in']),
    ['1m0s', '2m0s', '4m0s'],
  )
  assert.match(String(failed[0]?.fields['error']), /ENOSPC/)
  assert.equal(saved.count, 1)
  assert.deepEqual([schedule.status?.failures, schedule.status?.problem], [3, undefined])
  assert.equal(snapshotsIn(directory).length, 1)
  await schedule.stop()
}

test('a snapshot that cannot be read back is not counted, and no older one is removed for it', async (t) => {
  const store = await openStore(t)
  const s3 = await ObjectStore.start(t)
  process.env['AWS_ACCESS_KEY_ID'] = OBJECT_KEY.id
  process.env['AWS_SECRET_ACCESS_KEY'] = OBJECT_KEY.secret
  const at = { bucket: 'backups', prefix: 'core/', region: 'eu-central-1', endpoint: s3.url }
  const target = new S3Target(at, store.clusterId)
  const old = `core/${snapshotName(store.clusterId, START_MS - 5 * HOUR_MS)}`
  s3.objects.set(old, Buffer.from('kept'))
  s3.stored = (bytes) => {
    const changed = Buffer.from(bytes)
    changed[changed.length >> 1] = (changed[changed.length >> 1] ?? 0) ^ 1
    return changed
  }
  const { lines, saved, schedule } = await run(t, 30_000, { store, target, keep: 1 })
  assert.equal(saved.count, 0)
  assert.deepEqual([...s3.objects.keys()], [old], 'the damaged object was deleted')
  assert.match(String(lines[0]?.fields['error']), /damaged/)
  assert.match(String(schedule.status?.problem), /damaged/)
})

test('old snapshots that cannot be removed are counted and reported, and the new snapshot counts', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const target = new DirectoryTarget(directory, store.clusterId)
  const remove = target.remove.bind(target)
  target.remove = () => Promise.reject(new Error('access denied'))
  const { lines, saved, schedule } = await run(t, 2 * HOUR_MS, { store, target, keep: 1 })
  assert.equal(saved.count, 3)
  const failed = lines.filter(({ message }) => message === 'old snapshots not removed')
  assert.deepEqual(
    failed.map(({ fields, level }) => [level, fields['target'], fields['error']]),
    Array.from({ length: 2 }, () => ['error', directory, 'access denied']),
  )
  assert.ok(!lines.some(({ message }) => message.startsWith('scheduled snapshot failed')))
  const problem = `old snapshots in ${directory} were not removed: access denied`
  assert.deepEqual([schedule.status?.failures, schedule.status?.problem], [2, problem])
  await schedule.stop()
  target.remove = remove
  const { schedule: repaired } = await run(t, 3 * HOUR_MS, { store, target, keep: 1 })
  assert.equal(repaired.status?.problem, undefined)
  assert.deepEqual(snapshotsIn(directory), [snapshotName(store.clusterId, START_MS + 3 * HOUR_MS)])
})

test('an attempt that does not end is reported as overdue after two intervals', async (t) => {
  const store = await openStore(t)
  const clock = { ms: 0 }
  const target: SnapshotTarget = {
    location: '/mnt/backups',
    list: () => Promise.resolve([]),
    save: (_name, _source, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted')))),
    remove: () => Promise.resolve(),
  }
  const schedule = new SnapshotSchedule({
    intervalMs: HOUR_MS,
    keep: 3,
    clusterId: () => store.clusterId,
    targetOf: () => target,
    source: () => Promise.reject(new Error('not called')),
    reasonToSkip: () => undefined,
    clock: { nowMs: () => START_MS + clock.ms, monotonicMs: () => clock.ms },
    logger: recordingLogger([]),
    onSaved: () => assert.fail('nothing was saved'),
  })
  schedule.start()
  await new Promise(setImmediate)
  const problemAfterMs = (ms: number) => {
    clock.ms = ms
    return schedule.status?.problem
  }
  assert.equal(problemAfterMs(HOUR_MS - 1), undefined)
  assert.equal(problemAfterMs(2 * HOUR_MS), 'the scheduled snapshot to /mnt/backups is overdue by 2h0m0s')
  await schedule.stop()
})

test('snapshots in an object store are uploaded in parts, verified, and the oldest are removed', async (t) => {
  const store = await openStore(t, 10, 2 << 20)
  const s3 = await ObjectStore.start(t)
  process.env['AWS_ACCESS_KEY_ID'] = OBJECT_KEY.id
  process.env['AWS_SECRET_ACCESS_KEY'] = OBJECT_KEY.secret
  const at = { bucket: 'backups', prefix: 'core/', region: 'eu-central-1', endpoint: s3.url }
  s3.objects.set('core/else', Buffer.from('kept'))
  s3.objects.set(snapshotName(store.clusterId, START_MS), Buffer.from('outside the prefix'))
  const refused: string[] = []
  s3.fault = (request) => {
    if (refused.length > 0 || !request.startsWith('GET core/outpost')) return undefined
    refused.push(request)
    return new AwsError('AccessDenied', 'Access Denied', 403)
  }
  const { lines, saved } = await run(t, 2 * HOUR_MS + 200_000, {
    store,
    target: new S3Target(at, store.clusterId),
    keep: 2,
  })
  assert.equal(saved.count, 3)
  assert.match(String(lines[0]?.fields['error']), /Access ?Denied/)
  assert.equal(s3.uploads.size, 0)
  assert.ok(
    s3.journal.some((line) => line.startsWith('POST core/outpost')),
    'multipart',
  )
  const kept = [...s3.objects].filter(([key]) => key.startsWith('core/outpost'))
  assert.equal(kept.length, 2)
  for (const [key, bytes] of kept) {
    assert.equal(snapshotsAmong([key.slice('core/'.length)], store.clusterId).length, 1)
    assert.equal((await inspectSnapshot(Readable.from([bytes]))).meta.entries, 10)
  }
  assert.equal(s3.objects.size, 4)
})

test('an upload that fails leaves neither an object nor parts', async (t) => {
  const store = await openStore(t, 20, 1 << 20)
  const s3 = await ObjectStore.start(t)
  process.env['AWS_ACCESS_KEY_ID'] = OBJECT_KEY.id
  process.env['AWS_SECRET_ACCESS_KEY'] = OBJECT_KEY.secret
  const at = { bucket: 'backups', prefix: '', region: 'eu-central-1', endpoint: s3.url }
  let parts = 0
  s3.fault = (request) =>
    request.startsWith('PUT') && ++parts > 1 ? new AwsError('QuotaExceeded', 'the bucket is full', 403) : undefined
  const { lines } = await run(t, 0, { store, target: new S3Target(at, store.clusterId) })
  assert.match(String(lines[0]?.fields['error']), /the bucket is full/)
  assert.deepEqual([s3.objects.size, s3.uploads.size], [0, 0])
})

test('a partial file of a killed process is removed after an hour', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const partial = (atMs: number) => join(directory, `${snapshotName(store.clusterId, atMs)}.partial`)
  const [abandoned, recent] = [partial(START_MS - HOUR_MS), partial(START_MS - 1000)]
  for (const path of [abandoned, recent, join(directory, 'other.partial')]) writeFileSync(path, 'x')
  const old = Date.now() / 1000 - 7200
  for (const path of [abandoned, join(directory, 'other.partial')]) utimesSync(path, old, old)
  await run(t, 0, { store, target: new DirectoryTarget(directory, store.clusterId) })
  const left = snapshotsIn(directory).filter((name) => name.endsWith('.partial'))
  assert.deepEqual(left, [recent.slice(directory.length + 1), 'other.partial'].toSorted())
})

test('a directory that cannot be written is a failure of the schedule, not of the process', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const name = `${snapshotName(store.clusterId, START_MS)}.partial`
  writeFileSync(join(directory, name), 'of another process')
  const { lines } = await run(t, 0, { store, target: new DirectoryTarget(directory, store.clusterId) })
  assert.match(String(lines[0]?.fields['error']), /EEXIST/)
  assert.deepEqual(snapshotsIn(directory), [name])
  const file = join(directory, name)
  const { lines: more } = await run(t, 0, { store, target: new DirectoryTarget(file, store.clusterId) })
  assert.match(String(more[0]?.fields['error']), /EEXIST|ENOTDIR/)
})

test('a stop aborts a snapshot in progress and removes its file', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const writing = Promise.withResolvers<undefined>()
  const schedule = new SnapshotSchedule({
    intervalMs: HOUR_MS,
    keep: 1,
    clusterId: () => store.clusterId,
    targetOf: (clusterId) => new DirectoryTarget(directory, clusterId),
    source: (out, signal) => {
      out.write('the beginning', () => writing.resolve(undefined))
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          reject(new Error('aborted'))
        })
      })
    },
    reasonToSkip: () => undefined,
    clock: { nowMs: () => START_MS, monotonicMs: () => 0 },
    logger: recordingLogger([]),
    onSaved: () => assert.fail('not saved'),
  })
  schedule.start()
  await writing.promise
  assert.equal(snapshotsIn(directory).length, 1)
  await schedule.stop()
  assert.deepEqual(snapshotsIn(directory), [])
})
