/**
 * Scheduled snapshots go to a directory or a bucket that others may write to, at a store that may lie: planted names must not displace real
 * snapshots or delay the next one, the store must not pass off another snapshot as the one that was sent, and nothing that it sends
 * may exhaust the memory of the server or keep the schedule waiting.
 */
import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { DirectoryTarget } from '../../src/storage/snapshot/scheduled/directory-target.ts'
import { S3Target } from '../../src/storage/snapshot/scheduled/s3-target.ts'
import { SnapshotSchedule } from '../../src/storage/snapshot/scheduled/snapshot-schedule.ts'
import { snapshotName, type SnapshotTarget } from '../../src/storage/snapshot/scheduled/snapshot-target.ts'
import { saveSnapshot } from '../../src/storage/snapshot/snapshot.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { OBJECT_KEY, ObjectStore } from '../helpers/aws/object-store.ts'
import { recordingLogger, type LogLine } from '../helpers/recording-logger.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const HOUR_MS = 3_600_000
const START_MS = Date.UTC(2026, 0, 1)
const KEEP = 3

process.env['AWS_ACCESS_KEY_ID'] = OBJECT_KEY.id
process.env['AWS_SECRET_ACCESS_KEY'] = OBJECT_KEY.secret

async function openStore(t: TestContext): Promise<SqliteStore> {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => store.close())
  await store.commit({ puts: [{ path: 'e', value: Buffer.alloc(2000, 7) }], deletes: [] })
  return store
}

/** Runs a schedule of an hour for some hours of its clock. */
async function run(t: TestContext, store: SqliteStore, target: SnapshotTarget, hours: number) {
  const lines: LogLine[] = []
  const over = Promise.withResolvers<undefined>()
  let [ms, saved] = [0, 0]
  const schedule = new SnapshotSchedule({
    intervalMs: HOUR_MS,
    keep: KEEP,
    clusterId: () => store.clusterId,
    targetOf: () => target,
    source: (out, signal) => saveSnapshot(store, out, { signal }),
    reasonToSkip: () => undefined,
    clock: { nowMs: () => START_MS + ms, monotonicMs: () => ms },
    logger: recordingLogger(lines),
    onSaved: () => void saved++,
    pause: async (pauseMs, signal) => {
      ms += pauseMs
      if (ms <= hours * HOUR_MS) return
      over.resolve(undefined)
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
    },
  })
  t.after(() => schedule.stop())
  schedule.start()
  await over.promise
  return { schedule, lines, saved }
}

const realNames = ({ clusterId }: SqliteStore, hours: readonly number[]) =>
  hours.map((hour) => snapshotName(clusterId, START_MS + hour * HOUR_MS))

test('names of the future neither displace snapshots nor delay the next one', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const planted = [1, 2, 3, 4].map((year) => snapshotName(store.clusterId, Date.UTC(2090 + year)))
  for (const name of planted) writeFileSync(join(directory, name), '')
  const { saved, schedule } = await run(t, store, new DirectoryTarget(directory, store.clusterId), 4)
  assert.equal(saved, 5)
  assert.equal(schedule.status?.lastSavedAtMs, START_MS + 4 * HOUR_MS)
  assert.deepEqual(readdirSync(directory).toSorted(), [...realNames(store, [2, 3, 4]), ...planted])
})

test('directories and links with the names of snapshots are neither counted nor removed', async (t) => {
  const store = await openStore(t)
  const directory = temporaryDirectory(t)
  const [one = '', two = ''] = [-9, -8].map((hour) => snapshotName(store.clusterId, START_MS + hour * HOUR_MS))
  mkdirSync(join(directory, one))
  symlinkSync('/etc/hostname', join(directory, two))
  symlinkSync('/nowhere', join(directory, `${two}.partial`))
  const { lines, schedule } = await run(t, store, new DirectoryTarget(directory, store.clusterId), 4)
  assert.deepEqual(
    lines.filter(({ level }) => level === 'error'),
    [],
  )
  assert.equal(schedule.status?.failures, 0)
  assert.deepEqual(
    readdirSync(directory)
      .filter((name) => !name.endsWith('.partial'))
      .toSorted(),
    [one, two, ...realNames(store, [2, 3, 4])],
  )
})

test('a store that returns another intact snapshot is not believed', async (t) => {
  const store = await openStore(t)
  const s3 = await ObjectStore.start(t)
  const at = { bucket: 'backups', prefix: 'core/', region: 'eu-central-1', endpoint: s3.url }
  let first: Buffer | undefined
  s3.stored = (bytes) => (first ??= bytes)
  const target = new S3Target(at, store.clusterId)
  const source = (out: PassThrough, signal: AbortSignal) => saveSnapshot(store, out, { signal })
  const save = (hour: number) =>
    target.save(snapshotName(store.clusterId, START_MS + hour * HOUR_MS), source as never, new AbortController().signal)
  await save(0)
  await store.commit({ puts: [{ path: 'later', value: Buffer.alloc(10) }], deletes: [] })
  await assert.rejects(save(1), /other bytes than were sent|sent more than/)
  assert.equal(s3.objects.size, 1, 'it was deleted')
})

/** A store that answers every list, or every read, without an end. */
async function endlessStore(t: TestContext, answer: (response: ServerResponse, count: number) => void) {
  let count = 0
  const server = createServer((request, response) => {
    request.resume()
    response.on('error', () => undefined)
    answer(response, count++)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { bucket: 'backups', prefix: 'core/', region: 'eu-central-1', endpoint }
}

const CLUSTER_ID = '0b8e1f6a-6a1b-4c1f-9d55-0f6a3c5b7e11'
const XML = { 'content-type': 'application/xml' }

test('a page of a list, or an error, without an end is given up', { timeout: 120_000 }, async (t) => {
  for (const status of [200, 400]) {
    const at = await endlessStore(t, (response) => {
      response.writeHead(status, XML)
      const piece = Buffer.from('<Contents><Key>x</Key></Contents>'.repeat(2000))
      const more = () => {
        while (!response.destroyed && response.write(piece));
      }
      response.on('drain', more)
      response.write('<ListBucketResult>')
      more()
    })
    const target = new S3Target(at, CLUSTER_ID)
    await assert.rejects(target.list(new AbortController().signal), /16777216 bytes/, String(status))
  }
})

test('a list with pages without an end is given up', { timeout: 240_000 }, async (t) => {
  // Most are without a name: a million names take seconds to parse, and count the same.
  const keys = `<Contents><Key>core/1</Key></Contents>${'<Contents/>'.repeat(99_999)}`
  const at = await endlessStore(t, (response, page) => {
    const next = `<IsTruncated>true</IsTruncated><NextContinuationToken>${page}</NextContinuationToken>`
    response.writeHead(200, XML).end(`<ListBucketResult>${next}${keys}</ListBucketResult>`)
  })
  const target = new S3Target(at, CLUSTER_ID)
  await assert.rejects(target.list(new AbortController().signal), /more than 1000000 objects/)
})
