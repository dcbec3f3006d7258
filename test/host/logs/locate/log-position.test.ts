/** Where `tail_lines` and `since` begin, against plain models of both, and under what logs may do to a reader. */
import assert from 'node:assert/strict'
import { closeSync, ftruncateSync, openSync, readSync, truncateSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { laterPosition, type IndexedFile, tailPosition } from '../../../../src/host/logs/locate/log-position.ts'
import { type SinceLimits, sincePosition } from '../../../../src/host/logs/locate/log-since.ts'
import { OpenFile } from '../../../../src/host/files/read.ts'
import { Random } from '../../../helpers/frames.ts'
import { type NaiveFile, naiveSince, naiveTail } from '../../../helpers/log-model.ts'
import { randomLog } from '../../../helpers/random-log.ts'
import { temporaryDirectory } from '../../../helpers/temporary-directory.ts'

const LOGS = Number(process.env['POSITION_LOGS'] ?? 200)
const MIB = 2 ** 20
const GIB = 2 ** 30
const never = new AbortController().signal

/** Real files that are rewritten for each log. */
class Slots {
  readonly #fds: readonly number[]

  constructor(t: TestContext, count: number) {
    const directory = temporaryDirectory(t)
    this.#fds = Array.from({ length: count }, (_, at) => openSync(join(directory, String(at)), 'w+'))
    t.after(() => this.#fds.forEach((fd) => closeSync(fd)))
  }

  place(files: readonly NaiveFile[]): IndexedFile[] {
    return files.map(({ index, text, modifiedMs }, at) => {
      const fd = this.#fds[at] ?? 0
      ftruncateSync(fd)
      writeSync(fd, Buffer.from(text, 'latin1'), 0, text.length, 0)
      return { index, size: text.length, modifiedMs, file: new OpenFile(fd) }
    })
  }
}

/** Counts what is read, lets a test do something in between, and never leaves the turn of the event loop. */
class WatchedFile extends OpenFile {
  bytes = 0
  reads = 0
  onRead: () => void = () => undefined

  override async read(buffer: Buffer, at: number, length: number, position: number): Promise<number> {
    this.onRead()
    const got = readSync(this.fd, buffer, at, length, position)
    this.bytes += got
    this.reads++
    return got
  }
}

interface Watched extends IndexedFile {
  readonly file: WatchedFile
  readonly path: string
}

function watched(
  t: TestContext,
  content: string | Buffer,
  options: { sizeBytes?: number; modifiedMs?: number } = {},
): Watched {
  const path = join(temporaryDirectory(t), 'log')
  const { sizeBytes: size = content.length, modifiedMs = Date.now() } = options
  const fd = openSync(path, 'w+')
  // What stands in front is a hole: it costs no disk.
  writeSync(fd, Buffer.from(content), 0, content.length, size - content.length)
  const file = new WatchedFile(fd)
  t.after(() => file.close())
  return { index: 0, size, modifiedMs, file, path }
}

async function oneLog(slots: Slots, random: Random, log: number): Promise<void> {
  const bisected = log % 4 === 3
  const shape = {
    steady: bisected,
    startMs: Date.UTC(2026, random.between(0, 11), random.between(1, 28)),
    large: log % 50 < 2,
  }
  const { files, endMs } = randomLog(random, shape)
  const placed = slots.place(files)
  const count = files.reduce((sum, { text }) => sum + text.split('\n').length, 0)
  for (const lines of [0, 1, random.between(0, count + 2), random.pick([1e9, count])]) {
    assert.deepEqual(await tailPosition(placed, lines, never), naiveTail(files, lines), `${lines} lines`)
  }
  const limits: SinceLimits = bisected
    ? { linearBytesMax: 200, windowBytes: random.pick([1, 64, 300]) }
    : { linearBytesMax: 16 << 20, windowBytes: 1 << 20 }
  const headBytes = ({ text }: NaiveFile) =>
    text.length > limits.linearBytesMax ? limits.windowBytes : Number.POSITIVE_INFINITY
  const { startMs } = shape
  for (const sinceMs of [startMs, random.between(startMs, endMs), random.between(startMs, endMs), endMs, endMs + 1e7]) {
    const expected = naiveSince(files, sinceMs, headBytes)
    assert.deepEqual(await sincePosition(placed, sinceMs, never, limits), expected, `since ${sinceMs}`)
  }
}

for (const zone of ['UTC', 'America/St_Johns', 'Australia/Lord_Howe']) {
  test(`random logs with timestamps of ${zone}: both positions are those of the models`, async (t) => {
    const before = process.env['TZ']
    process.env['TZ'] = zone
    t.after(() => {
      if (before === undefined) delete process.env['TZ']
      else process.env['TZ'] = before
    })
    const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 1e9)
    const slots = new Slots(t, 5)
    for (let log = 0; log < LOGS / (zone === 'UTC' ? 1 : 10); log++) {
      try {
        await oneLog(slots, new Random(seed + log), log)
      } catch (error) {
        throw new Error(`log ${log}, OUTPOST_SEED=${seed}: ${String(error)}`, { cause: error })
      }
    }
  })
}

test('the last lines of 10 GiB cost as much as the last lines', async (t) => {
  const lines = Array.from({ length: 5000 }, (_, line) => `line ${line} of a log that is long\n`)
  const placed = watched(t, lines.join(''), { sizeBytes: 10 * GIB })
  const bytes = lines.slice(-1000).join('').length
  assert.deepEqual(await tailPosition([placed], 1000, never), { index: 0, offset: 10 * GIB - bytes })
  assert.ok(placed.file.bytes <= bytes + 2 * 65_536, `${placed.file.bytes} bytes read`)
})

test('a time in 10 GiB is found with few reads', async (t) => {
  const startMs = Date.UTC(2026, 5, 1)
  const step = 64 * MIB
  const placed = watched(t, '', { sizeBytes: 10 * GIB })
  // A block of lines each 64 MiB, and long lines of NULs between.
  for (let at = 0; at < 10 * GIB; at += step) {
    const blockMs = startMs + (at / step) * 60_000
    const stamped = [0, 1, 2].map((second) => `\n${new Date(blockMs + second * 1000).toISOString()} x`).join('')
    writeSync(placed.file.fd, Buffer.from(`${stamped}\n`), 0, stamped.length + 1, at)
  }
  const offset = 80 * step + 1 + 2 * 27
  assert.deepEqual(await sincePosition([placed], startMs + 80 * 60_000 + 1500, never), { index: 0, offset })
  assert.ok(placed.file.bytes < 20 * step, `${placed.file.bytes} bytes read`)
})

test('lines of 100 MB, no lines and only newlines are handled', async (t) => {
  const long = Buffer.alloc(100 * MIB, 'y')
  long[0] = 10
  long[50 * MIB] = 10
  const placed = watched(t, long)
  assert.deepEqual(await tailPosition([placed], 1, never), { index: 0, offset: 50 * MIB + 1 })
  assert.deepEqual(await tailPosition([placed], 2, never), { index: 0, offset: 1 })
  assert.deepEqual(await tailPosition([placed], 1e9, never), { index: 0, offset: 0 })
  assert.deepEqual(await sincePosition([placed], 0, never), { index: 0, offset: 0 })
  const nothing = watched(t, '', { sizeBytes: GIB / 4 })
  assert.deepEqual(await tailPosition([nothing], 3, never), { index: 0, offset: 0 })
  const newlines = watched(t, Buffer.alloc(8 * MIB, 10))
  assert.deepEqual(await tailPosition([newlines], 5 * MIB, never), { index: 0, offset: 3 * MIB })
})

test('the search of a large log yields the event loop', async (t) => {
  const placed = watched(t, Buffer.alloc(10 * MIB, 'word\n'))
  const whole = { linearBytesMax: 1e9, windowBytes: 1e9 }
  for (const search of [() => tailPosition([placed], 1e9, never), () => sincePosition([placed], 0, never, whole)]) {
    let [turns, isOver] = [0, false]
    const takeTurn = () => {
      turns++
      if (!isOver) setImmediate(takeTurn)
    }
    setImmediate(takeTurn)
    await search()
    isOver = true
    assert.ok(turns > 1, String(turns))
  }
  // As many again while two searches share their turns.
  const [one, two] = await Promise.all([tailPosition([placed], 7, never), tailPosition([placed], 1e9, never)])
  assert.deepEqual([one.offset, two.offset], [10 * MIB - 35, 0])
})

test('an abort stops the search', async (t) => {
  const placed = watched(t, Buffer.alloc(32 * MIB, 'word\n'))
  for (const search of [
    (signal: AbortSignal) => tailPosition([placed], 1e9, signal),
    (signal: AbortSignal) => sincePosition([placed], 0, signal, { linearBytesMax: 1e9, windowBytes: 1e9 }),
  ]) {
    const caller = new AbortController()
    placed.file.bytes = 0
    placed.file.onRead = () => placed.file.bytes > MIB && caller.abort()
    await assert.rejects(search(caller.signal), { name: 'AbortError' })
    assert.ok(placed.file.bytes < 2 * MIB)
  }
})

test('bytes that vanish during the search count as absent', async (t) => {
  const older = watched(t, 'a\nb\n')
  const shrinking = { ...watched(t, Buffer.alloc(4 * MIB, 'word\n')), index: 1 }
  shrinking.file.onRead = () => truncateSync(shrinking.path, 10)
  assert.deepEqual(await tailPosition([older, shrinking], 1, never), { index: 1, offset: 5 })
  assert.deepEqual(await tailPosition([older, shrinking], 3, never), { index: 0, offset: 2 })
  assert.ok(shrinking.file.reads < 8, 'its old size is not gone through')
  truncateSync(shrinking.path, 0)
  shrinking.file.onRead = () => undefined
  assert.deepEqual(await tailPosition([older, shrinking], 2, never), { index: 0, offset: 0 })
  assert.deepEqual(await sincePosition([older, shrinking], Date.now() + 1e6, never), {
    index: 1,
    offset: shrinking.size,
  })
})

test('since uses the modification times and timestamps of the files', async (t) => {
  const nowMs = Date.UTC(2026, 10, 21, 10)
  const at = (minutes: number) => new Date(nowMs + minutes * 60_000).toISOString()
  const file = (index: number, text: string, minutes: number) => ({
    ...watched(t, text, { modifiedMs: nowMs + minutes * 60_000 }),
    index,
  })
  const old = file(0, 'no times\n', -60)
  const plain = file(1, 'no times either\n', -5)
  const stamped = file(2, `${at(-4)} a\n\tat b\n${at(-2)} c\n${at(-3)} d\n${at(-1)} e\n`, -1)
  const since = (files: IndexedFile[], minutes: number) => sincePosition(files, nowMs + minutes * 60_000, never)
  assert.deepEqual(
    await since([old, plain, stamped], -10),
    { index: 1, offset: 0 },
    'the first that was modified since',
  )
  assert.deepEqual(await since([old, stamped], -10), { index: 2, offset: 0 })
  assert.deepEqual(await since([old, stamped], -3), { index: 2, offset: 33 }, 'in front of what a stepped clock wrote')
  assert.deepEqual(await since([stamped], -1), { index: 2, offset: 33 + 27 * 2 })
  assert.deepEqual(await since([old, plain, stamped], 1), { index: 2, offset: stamped.size }, 'the future is the end')
  const next = file(3, 'goes on\nwithout times\n', 0)
  assert.deepEqual(await since([stamped, next], -0.5), { index: 3, offset: 0 })
  // A file is stamped with the time of the kernel's last tick.
  assert.deepEqual(await since([stamped], -1 + 5 / 60_000), { index: 2, offset: stamped.size })
  assert.deepEqual(await since([file(0, 'x\n', 0)], 5 / 60_000), { index: 0, offset: 0 })
})

test('since finds a line at every block boundary', async (t) => {
  const sinceMs = Date.UTC(2026, 10, 21, 10)
  const wanted = '2026-11-21T10:00:00Z wanted\n2026-11-21T11:00:00Z not the first\n'
  for (let bytes = 2 * 65_536 - 110; bytes <= 2 * 65_536 + 2; bytes++) {
    const placed = watched(t, `2026-11-21T09:00:00Z old\n${'x'.repeat(bytes - 26)}\n${wanted}`)
    assert.deepEqual(await sincePosition([placed], sinceMs, never), { index: 0, offset: bytes })
  }
})

test('since handles lines and timestamps split between files', async (t) => {
  const sinceMs = Date.UTC(2026, 10, 21, 10)
  const first = watched(t, '2026-11-21T09:00:00Z old\n2026-11-21T10:0', { modifiedMs: sinceMs })
  const second = {
    ...watched(t, '0:00Z begins in the file before\n2026-11-21T10:00:01Z x\n', { modifiedMs: sinceMs }),
    index: 1,
  }
  assert.deepEqual(await sincePosition([first, second], sinceMs, never), { index: 0, offset: 25 })
  const goesOn = {
    ...watched(t, '2026-11-21T10:00:00Z is inside a line\n2026-11-21T10:00:01Z x\n', { modifiedMs: sinceMs }),
    index: 1,
  }
  const before = watched(t, '2026-11-21T09:00:00Z said at ', { modifiedMs: sinceMs - 1e6 })
  assert.deepEqual(await sincePosition([before, goesOn], sinceMs, never), { index: 1, offset: 38 })
})

test('laterPosition orders positions', () => {
  const places = [
    { index: 0, offset: 9 },
    { index: 1, offset: 0 },
    { index: 1, offset: 5 },
  ] as const
  for (const [a, first] of places.entries()) {
    for (const [b, second] of places.entries()) assert.equal(laterPosition(first, second), places[Math.max(a, b)])
  }
})
