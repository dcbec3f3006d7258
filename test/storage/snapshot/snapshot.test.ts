/** Snapshots: complete, of one point in time, and restored atomically. */
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  closeSync,
  createReadStream,
  createWriteStream,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { PassThrough, Readable, Writable } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { gunzipSync, gzipSync } from 'node:zlib'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { restoreSnapshot, saveSnapshot } from '../../../src/storage/snapshot/snapshot.ts'
import { tarHeader } from '../../../src/platform/tar.ts'
import { encodeMeta, MEMBERS } from '../../../src/storage/snapshot/format/snapshot-archive.ts'
import type { CommitPosition } from '../../../src/storage/sqlite/rows.ts'
import { SqliteStore, StoreError } from '../../../src/storage/store/store.ts'
import { EVERY_ROW } from '../../helpers/every-row.ts'
import { Random } from '../../helpers/frames.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const put = (path: string, value = path) => ({ path, value: Buffer.from(value) })

async function openIn(t: TestContext, directory = temporaryDirectory(t)): Promise<SqliteStore> {
  const store = await SqliteStore.open(join(directory, 'secrets.db'))
  t.after(() => store.close())
  return store
}

async function fill(store: SqliteStore, count: number, seed = 5, largeBytes = 3 << 20): Promise<void> {
  const random = new Random(seed)
  const puts = Array.from({ length: count }, (_, at) => ({
    path: `d${at % 11}/é${at}`,
    value: randomBytes(random.pick([0, 30, 1000, 5000] as const)),
  }))
  puts.push({ path: 'large', value: randomBytes(largeBytes) })
  for (let at = 0; at < puts.length; at += 200) await store.commit({ puts: puts.slice(at, at + 200), deletes: [] })
  await store.commit({ puts: [put('local/mine')], deletes: [] })
}

async function saved(store: SqliteStore): Promise<Buffer> {
  const chunks: Buffer[] = []
  const out = new Writable({ write: (chunk: Buffer, _, done) => (chunks.push(chunk), done()) })
  await saveSnapshot(store, out)
  return Buffer.concat(chunks)
}

const restored = (store: SqliteStore, bytes: Buffer, force = false) =>
  restoreSnapshot(store, Readable.from([bytes.subarray(0, 1000), bytes.subarray(1000)]), { force })

const shown = ({ sequence, epoch, checksum }: CommitPosition) =>
  `${sequence} ${epoch} ${Buffer.from(checksum).toString('hex')}`

/** All that is replicated, as one text. */
function contentsOf(store: SqliteStore): string {
  const own = store.paths('').filter((path) => !path.startsWith('local/'))
  return own
    .map((path) => `${path} ${store.get(path)?.sequence} ${Buffer.from(store.get(path)?.value ?? []).toString('hex')}`)
    .join('\n')
}

test('a snapshot has one point in time while commits continue, and a restore returns exactly that state', async (t) => {
  const store = await openIn(t)
  await fill(store, 1000)
  const contents = contentsOf(store)
  const position = store.position()
  const state = { isSaved: false }
  const file = join(dirname(store.path), 'snapshot')
  const done: number[] = []
  const saving = saveSnapshot(store, createWriteStream(file), {
    onProgress: (bytes, total) => (assert.ok(bytes <= total), done.push(bytes)),
  }).finally(() => (state.isSaved = true))
  // The first commits may come before the moment of the snapshot, so they are not told apart: they change nothing.
  for (let at = 0; !state.isSaved; at++) await store.commit({ puts: [put('local/other', String(at))], deletes: [] })
  const meta = await saving
  assert.equal(meta.entries, 1001)
  assert.equal(meta.sequence, position.sequence)
  assert.equal(done.at(-1), meta.bytes)
  await store.commit({ puts: [put('new'), put('large', 'small')], deletes: ['d0/é0'] })
  const epoch = store.epoch
  const received: number[] = []
  await restoreSnapshot(store, createReadStream(file), { onProgress: (bytes) => received.push(bytes) })
  assert.equal(contentsOf(store), contents)
  assert.equal(received.at(-1), meta.bytes)
  assert.equal(store.get('local/mine'), undefined)
  assert.equal(store.epoch, epoch + 1)
  assert.equal(shown(store.position()), shown(position))
  assert.equal(await store.commit({ puts: [put('after')], deletes: [] }), position.sequence + 1)
  assert.equal(store.rowsAfter(0, EVERY_ROW)[0]?.epoch, epoch + 1)
  await store.close()
  assert.deepEqual(checkDatabase(store.path), [])
  assert.ok(!readdirSync(dirname(store.path)).some((name) => name.includes('snapshot-')))
})

test('tar and sha256sum read a snapshot and verify its checksums', async (t) => {
  const store = await openIn(t)
  await fill(store, 50)
  const directory = temporaryDirectory(t)
  writeFileSync(join(directory, 'snapshot.tgz'), await saved(store))
  const names = execFileSync('tar', ['-xvzf', 'snapshot.tgz'], { cwd: directory }).toString().trim().split('\n')
  assert.deepEqual(names, [...MEMBERS])
  execFileSync('sha256sum', ['-c', 'SHA256SUMS'], { cwd: directory })
  const meta = JSON.parse(readFileSync(join(directory, 'meta.json'), 'utf8')) as { Index: number; Size: number }
  assert.equal(meta.Index, store.position().sequence)
  assert.equal(meta.Size, readFileSync(join(directory, 'state.bin')).length)
  const header = tarHeader('state.bin', 9 * 2 ** 33, 0)
  assert.equal(header[124], 0x80)
})

test('refuses an incomplete or damaged snapshot before anything is changed', async (t) => {
  const store = await openIn(t)
  // Each case is read whole.
  await fill(store, 60, 5, 100_000)
  const bytes = await saved(store)
  await store.commit({ puts: [put('since')], deletes: [] })
  const contents = contentsOf(store)
  const archive = gunzipSync(bytes)
  const random = new Random(6)
  const cases: [string, Buffer][] = [
    ['nothing', Buffer.alloc(0)],
    ['text', Buffer.from('this is no snapshot at all, however one looks at it')],
    ['an empty archive', gzipSync(Buffer.alloc(1024))],
    ['another archive', gzipSync(Buffer.concat([tarHeader('state.bin', 0, 0), Buffer.alloc(1024)]))],
    ['something behind it', gzipSync(Buffer.concat([archive, Buffer.from('more')]))],
    ['two of them', gzipSync(Buffer.concat([archive.subarray(0, -1024), archive]))],
  ]
  const otherTime = Buffer.from(archive)
  const digitAt = archive.indexOf('"takenAtMs":') + '"takenAtMs":1'.length
  otherTime[digitAt] = (otherTime[digitAt] ?? 0) ^ 1
  cases.push(['another time in its description', gzipSync(otherTime)])
  for (let count = 0; count < 25; count++) {
    const cut = random.between(1, bytes.length - 1)
    cases.push([`cut to ${cut}`, bytes.subarray(0, cut)])
    // Without its archive's own checksum, so that ours are asked. The last block pads and has no meaning.
    const changed = Buffer.from(archive)
    const at = random.between(0, changed.length - 1025)
    changed[at] = (changed[at] ?? 0) ^ (1 << random.between(0, 7))
    const isPadding = archive[at] === 0 && archive.subarray(at, at + (512 - (at % 512))).every((byte) => byte === 0)
    if (!isPadding) cases.push([`byte ${at} of the archive`, gzipSync(changed, { level: 0 })])
  }
  for (const [name, damaged] of cases) {
    await assert.rejects(restored(store, damaged), /not a snapshot of outpost|the snapshot is damaged/, name)
    assert.equal(store.get('since')?.value.length, 5, name)
  }
  assert.equal(contentsOf(store), contents)
  await restored(store, bytes)
  assert.equal(store.get('since'), undefined)
})

test('refuses a newer format and another cluster; the latter is accepted with force and by an empty store', async (t) => {
  const store = await openIn(t)
  await fill(store, 20)
  const bytes = await saved(store)
  const archive = gunzipSync(bytes)
  const size = Number.parseInt(archive.toString('latin1', 124, 135), 8)
  const meta = JSON.parse(archive.toString('utf8', 512, 512 + size)) as Parameters<typeof encodeMeta>[0]
  const newer = encodeMeta({ ...meta, format: 2 })
  assert.equal(newer.length, size)
  newer.copy(archive, 512)
  await assert.rejects(restored(store, gzipSync(archive)), /newer version/)
  const other = await openIn(t)
  await other.commit({ puts: [put('own')], deletes: [] })
  await assert.rejects(restored(other, bytes), /another cluster/)
  assert.ok(other.get('own'))
  assert.notEqual(other.clusterId, store.clusterId)
  await restored(other, bytes, true)
  assert.equal(contentsOf(other), contentsOf(store))
  assert.equal(other.clusterId, store.clusterId)
  const fresh = await openIn(t)
  await restored(fresh, bytes)
  assert.equal(contentsOf(fresh), contentsOf(store))
})

test('a restore leaves the barrier open if its root key opens the restored keyring, and seals it otherwise', async (t) => {
  const store = await openIn(t)
  const barrier = new Barrier(store)
  const rootKey = randomBytes(32)
  await barrier.initialise(rootKey)
  barrier.unseal(rootKey)
  await barrier.commit({ puts: [put('a', 'before')], deletes: [] })
  const bytes = await saved(store)
  assert.equal(bytes.indexOf('before'), -1)
  await barrier.rotate()
  await barrier.commit({ puts: [put('a', 'since')], deletes: [] })
  await restored(store, bytes)
  assert.equal(barrier.get('a')?.toString(), 'before')
  assert.equal(barrier.status.term, 1)
  await barrier.rekey(randomBytes(32))
  await restored(store, bytes)
  assert.ok(barrier.isSealed)
  barrier.unseal(rootKey)
  assert.equal(barrier.get('a')?.toString(), 'before')
})

test('commits are refused during the restore transaction, and an aborted restore changes nothing', async (t) => {
  const store = await openIn(t)
  await fill(store, 2000)
  const bytes = await saved(store)
  const restoring = restored(store, bytes)
  const kinds = new Set<string>()
  const attempt = () => {
    try {
      store.commit({ puts: [put('meanwhile')], deletes: [] }).catch(() => undefined)
    } catch (error) {
      kinds.add(error instanceof StoreError ? error.kind : String(error))
    }
  }
  // Not after it has ended: that would be taken.
  const trying = setInterval(() => kinds.size === 0 && attempt(), 1)
  await restoring
  clearInterval(trying)
  assert.deepEqual([...kinds], ['busy'])
  assert.equal(store.get('meanwhile'), undefined)
  await store.commit({ puts: [put('after')], deletes: [] })
  const input = new PassThrough()
  input.write(bytes.subarray(0, 100_000))
  const left = new AbortController()
  const leaving = restoreSnapshot(store, input, { signal: left.signal })
  left.abort()
  await assert.rejects(leaving)
  assert.ok(store.get('after'))
})

test('commits are accepted after a restore that failed with an error of the disk', async (t) => {
  const store = await openIn(t)
  await fill(store, 10)
  // A descriptor that cannot be read.
  const fd = openSync(join(dirname(store.path), 'unreadable'), 'w')
  t.after(() => closeSync(fd))
  const meta = await saveSnapshot(store, new Writable({ write: (_chunk, _encoding, done) => done() }))
  await assert.rejects(store.restore(fd, { meta, sha256: '0'.repeat(64), requires: [] }), { kind: 'failed' })
  await store.commit({ puts: [put('after')], deletes: [] })
  assert.ok(store.get('after'))
})

test('a stalled receiver of a snapshot blocks neither writers nor checkpoints', async (t) => {
  const store = await openIn(t)
  await fill(store, 300)
  const slow = new Writable({ highWaterMark: 1, write: () => undefined })
  const left = new AbortController()
  const saving = saveSnapshot(store, slow, { signal: left.signal })
  for (let at = 0; at < 50; at++) await store.commit({ puts: [put('a', String(at))], deletes: [] })
  await eventually(() => existsSync(`${store.path}-wal`) && readFileSync(`${store.path}-wal`).length === 0)
  left.abort()
  await assert.rejects(saving, /abort/i)
})

test('a restore that is killed at any time leaves either the old or the new state', async (t) => {
  const directory = temporaryDirectory(t)
  const path = join(directory, 'secrets.db')
  const first = await SqliteStore.open(path)
  const kills = Number(process.env['KILLS'] ?? 2)
  await fill(first, kills > 3 ? 1500 : 800, 1)
  const snapshot = join(directory, 'snapshot')
  writeFileSync(snapshot, await saved(first))
  const ofSnapshot = contentsOf(first)
  await first.close()
  const seed = Number(process.env['OUTPOST_SEED'] ?? 12)
  t.diagnostic(`OUTPOST_SEED=${seed}`)
  const random = new Random(seed)
  let longestMs = 0
  const seen = new Set<string>()
  for (let run = 0; run < kills; run++) {
    const store = await SqliteStore.open(path)
    await store.commit({ puts: [put('since', String(run))], deletes: [] })
    const before = contentsOf(store)
    await store.close()
    const child = spawn(process.execPath, [join(import.meta.dirname, 'restorer.ts'), path, snapshot])
    const closed = once(child, 'close')
    let said = ''
    child.stdout.on('data', (bytes: Buffer) => (said += bytes.toString()))
    await eventually(() => said.includes('begins'))
    const startMs = performance.now()
    // The first one is left alone, to know how long it takes.
    if (run > 0) await delay(random.between(0, longestMs))
    if (run > 0) child.kill('SIGKILL')
    await closed
    longestMs = Math.max(longestMs, performance.now() - startMs)
    assert.deepEqual(checkDatabase(path), [])
    const after = await SqliteStore.open(path)
    const contents = contentsOf(after)
    await after.close()
    assert.ok(contents === before || contents === ofSnapshot, `run ${run}: neither the one nor the other`)
    if (run === 0 || said.includes('done')) assert.ok(contents === ofSnapshot)
    seen.add(contents === before ? 'old' : 'new')
  }
  t.diagnostic([...seen].join(' and '))
})
