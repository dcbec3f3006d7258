/**
 * The promise about chunks: their bytes stay valid until the second chunk after them is asked for, at the end and after
 * an early end too; and a stream returns its buffers however it ends.
 */
import assert from 'node:assert/strict'
import { mkdirSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { BufferLease } from '../../../src/host/files/buffers.ts'
import { fsCat, fsReadAt } from '../../../src/host/files/content.ts'
import { Followers } from '../../../src/host/logs/follow/followers.ts'
import { fsLogs } from '../../../src/host/logs/task-logs.ts'
import { fsStream } from '../../../src/host/logs/file-stream.ts'
import { spendTurn } from '../../../src/host/files/read.ts'
import { type AnyOperation, type Chunk, isStreamHead } from '../../../src/platform/operation.ts'
import type { RawInput } from '../../../src/platform/schema.ts'
import { recordingLogger, performed } from '../allocations/host-fixture.ts'
import { ALLOC_ID, allocationIn } from '../../helpers/tail-host.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const MIB = 2 ** 20

/** As a request for the allocation would have it. */
function rawOf(input: Record<string, unknown>): RawInput {
  const query = Object.entries(input).map(([name, value]): [string, string] => [name, String(value)])
  return { params: { alloc_id: ALLOC_ID }, query, headers: {}, body: undefined }
}

function open(operation: AnyOperation | undefined, input: Record<string, unknown>): AsyncIterator<Chunk> {
  const result = operation && performed(operation, operation.input.parse(rawOf(input)))
  assert.ok(result !== undefined && Symbol.asyncIterator in result)
  return result[Symbol.asyncIterator]()
}

async function bytesOf(iterator: AsyncIterator<Chunk>): Promise<Uint8Array | undefined> {
  for (;;) {
    const { done, value } = await iterator.next()
    if (done) return undefined
    if (!isStreamHead(value)) return value
  }
}

test('a chunk stays unchanged until the second chunk after it is requested', async (t) => {
  const directory = join(realpathSync(temporaryDirectory(t)), ALLOC_ID)
  mkdirSync(join(directory, 'alloc/logs'), { recursive: true })
  for (const [index, letter] of ['a', 'b'].entries()) {
    writeFileSync(join(directory, `alloc/logs/web.stdout.${index}`), letter.repeat(100_000))
    writeFileSync(join(directory, letter), letter.repeat(200_000))
  }
  const allocation = allocationIn(directory)
  const allocations = { get: () => allocation, all: () => [allocation].values() }
  const followers = new Followers({ limit: 0, logger: recordingLogger() })
  const [cat, readat] = [fsCat.in({ allocations }), fsReadAt.in({ allocations })]
  const stream = fsStream.in({ allocations, followers })
  const logs = fsLogs.in({ allocations, followers })
  const common = { task: 'web', type: 'stdout', origin: 'start', offset: 0, range: undefined, limit: -1 }
  const makers = [
    (path: string) => open(cat, { ...common, path }),
    (path: string) => open(readat, { ...common, path }),
    (path: string) => open(stream, { ...common, path, follow: false }),
    () => open(logs, { ...common, follow: false, plain: true }),
    () => open(logs, { ...common, follow: false, plain: false }),
  ] as const
  for (const [number, make] of makers.entries()) {
    const kept: { bytes: Uint8Array; copy: Buffer }[] = []
    const first = make('a')
    for (;;) {
      const bytes = await bytesOf(first)
      // Another stream of the same kind reads all it wants, at any moment.
      const other = make('b')
      while ((await bytesOf(other)) !== undefined);
      // The one before is in flight while this one is made; those before that are written.
      const inFlight = kept.at(-1)
      if (inFlight) assert.ok(inFlight.copy.equals(inFlight.bytes), `maker ${number}: overwritten in flight`)
      if (bytes === undefined) break
      kept.push({ bytes, copy: Buffer.from(bytes) })
    }
    assert.ok(kept.length >= 2)
  }
})

/** A lease that has taken enough to be given large buffers, and how much it then asks for. */
function hungry(): { lease: BufferLease; bytes: number } {
  const lease = new BufferLease({ framed: true })
  lease.advance(64 * MIB)
  return { lease, bytes: lease.readBytes(100) }
}

test('streams that end early release their large buffers', () => {
  const most = 100
  for (let round = 0; round < 5; round++) {
    const leases = Array.from({ length: most }, hungry)
    const got = leases.filter(({ bytes }) => bytes > 65_536).length
    assert.ok(got > 0 && got < most, `${got} of ${most} large in round ${round}`)
    for (const [index, { lease }] of leases.entries()) {
      if (index % 2 === 0) lease.dropBuffers()
      else lease.returnBuffers()
    }
  }
})

test('a waiting stream returns its buffers, and the next reader gets them', () => {
  const [waiting, reading] = [new BufferLease({ framed: true }), new BufferLease({ framed: true })]
  const [read, frames] = [waiting.readBuffer(), waiting.framesBuffer()]
  waiting.returnBuffers()
  assert.deepEqual([reading.readBuffer() === read, reading.framesBuffer() === frames], [true, true])
  assert.notEqual(waiting.readBuffer(), read)
  for (const lease of [waiting, reading]) lease.returnBuffers()
})

test('synchronous reads yield the event loop', async (t) => {
  const directory = join(realpathSync(temporaryDirectory(t)), ALLOC_ID)
  mkdirSync(join(directory, 'alloc/logs'), { recursive: true })
  writeFileSync(join(directory, 'alloc/logs/web.stdout.0'), Buffer.alloc(64 * MIB, 97))
  const allocation = allocationIn(directory)
  const allocations = { get: () => allocation, all: () => [allocation].values() }
  const logs = fsLogs.in({ allocations, followers: new Followers({ limit: 0, logger: recordingLogger() }) })
  for (const follow of [false, true]) {
    const chunks = open(logs, { task: 'web', type: 'stdout', origin: 'start', offset: 0, plain: true, follow })
    let turns = 0
    let running = true
    const count = () => {
      turns++
      if (running) setImmediate(count)
    }
    setImmediate(count)
    for (let bytes = 0; bytes < 64 * MIB; ) bytes += (await bytesOf(chunks))?.length ?? Number.POSITIVE_INFINITY
    running = false
    await chunks.return?.()
    assert.ok(turns >= 4, `${turns} turns in 64 MiB, follow=${follow}`)
  }
})

test('a turn ends after its time slice, and the next one starts when all waiters have run', async () => {
  const from = Buffer.alloc(1 << 16, 1)
  for (let round = 0; round < 3; round++) {
    await new Promise(setImmediate)
    let turn: Promise<void> | undefined
    // As a reader that copies what it hands on: a gigabyte takes far longer than a turn.
    for (let bytes = 0; !turn && bytes < 1024 * MIB; bytes += from.length) {
      Buffer.from(from)
      turn = spendTurn(from.length)
    }
    assert.ok(turn, 'nothing was ever to be awaited')
    await turn
  }
  for (let line = 0; line < 100_000; line++) assert.equal(spendTurn(100), undefined)
})
