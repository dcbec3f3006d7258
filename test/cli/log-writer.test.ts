import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { LogWriter } from '../../src/supervisor/log-writer.ts'
import { temporaryDirectory } from './outpost-process.ts'

const KIB = 1024
const ZONE = 32 * KIB

function writerIn(directory: string, change: Partial<{ maxFiles: number; maxFileBytes: number }> = {}) {
  return new LogWriter({ directory, task: 'web', type: 'stdout', maxFiles: 1000, maxFileBytes: 100 * KIB, ...change })
}

function filesIn(directory: string): string[] {
  return readdirSync(directory).sort((a, b) => Number(a.split('.').at(-1)) - Number(b.split('.').at(-1)))
}

function contentOf(directory: string): Buffer {
  return Buffer.concat(filesIn(directory).map((name) => readFileSync(join(directory, name))))
}

/** Lines of pseudo-random length, cut into chunks at pseudo-random places; the same for the same seed. */
function chunksOfLines(seed: number, lineBytesMax: number, chunkBytesMax: number, totalBytes: number): Buffer[] {
  let state = seed
  const next = (limit: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff
    return state % limit
  }
  const lines: string[] = []
  for (let bytes = 0; bytes < totalBytes; bytes += lines.at(-1)?.length ?? 0) {
    lines.push(`${String(lines.length).padEnd(next(lineBytesMax) + 1, 'x')}\n`)
  }
  const all = Buffer.from(lines.join(''))
  const chunks: Buffer[] = []
  for (let at = 0; at < all.length; ) {
    const size = next(chunkBytesMax) + 1
    chunks.push(all.subarray(at, at + size))
    at += size
  }
  return chunks
}

test('a byte is in the file when write returns', (t) => {
  const directory = temporaryDirectory(t)
  const log = writerIn(directory)
  log.write(Buffer.from('half a li'))
  assert.equal(readFileSync(join(directory, 'web.stdout.0'), 'utf8'), 'half a li')
  log.write(Buffer.from('ne\n'))
  assert.equal(readFileSync(join(directory, 'web.stdout.0'), 'utf8'), 'half a line\n')
  log.close()
})

for (const [lineBytesMax, chunkBytesMax] of [
  [200, 10],
  [200, 300],
  [200, 64 * KIB],
  [30_000, 700],
  [30_000, 64 * KIB],
  [30_000, 300 * KIB],
] as const) {
  test(`every file ends with a line: lines to ${lineBytesMax}, chunks to ${chunkBytesMax}`, (t) => {
    const directory = temporaryDirectory(t)
    const log = writerIn(directory)
    const chunks = chunksOfLines(lineBytesMax + chunkBytesMax, lineBytesMax, chunkBytesMax, 2048 * KIB)
    for (const chunk of chunks) log.write(chunk)
    log.close()
    const files = filesIn(directory)
    assert.ok(contentOf(directory).equals(Buffer.concat(chunks)), 'all bytes, in order, none twice')
    assert.ok(files.length > 15, `${files.length} files`)
    for (const name of files.slice(0, -1)) {
      const bytes = readFileSync(join(directory, name))
      assert.equal(bytes.at(-1), 10, `${name} ends with a line`)
      assert.ok(bytes.length <= 100 * KIB, `${name} is too large: ${bytes.length}`)
      assert.ok(bytes.length > 100 * KIB - ZONE, `${name} is too small: ${bytes.length}`)
    }
    assert.deepEqual(
      files,
      files.map((_, index) => `web.stdout.${index}`),
      'indexes have no gaps',
    )
  })
}

test('a file is filled as far as whole lines go, with no over-counting', (t) => {
  const directory = temporaryDirectory(t)
  const log = writerIn(directory)
  const line = `${'y'.repeat(99)}\n`
  for (let count = 0; count < 3000; count++) log.write(Buffer.from(line.repeat(3)))
  log.close()
  const sizes = filesIn(directory).map((name) => statSync(join(directory, name)).size)
  for (const size of sizes.slice(0, -1)) assert.equal(size, 102_400)
})

test('a line that begins near the end and comes in pieces goes into the next file whole', (t) => {
  const directory = temporaryDirectory(t)
  const log = writerIn(directory)
  log.write(Buffer.from(`${'y'.repeat(100 * KIB - 151)}\n`))
  for (const piece of ['a'.repeat(100), 'b'.repeat(100), '\n']) log.write(Buffer.from(piece))
  log.close()
  assert.equal(readFileSync(join(directory, 'web.stdout.1'), 'utf8'), `${'a'.repeat(100)}${'b'.repeat(100)}\n`)
})

test('a restart in the middle of a line continues the same file', (t) => {
  const directory = temporaryDirectory(t)
  writeFileSync(join(directory, 'web.stdout.0'), 'y'.repeat(100 * KIB - 50))
  const log = writerIn(directory)
  log.write(Buffer.from('rest'))
  log.close()
  assert.deepEqual(filesIn(directory), ['web.stdout.0'])
})

test('lines longer than the zone are split at the limit exactly', (t) => {
  const directory = temporaryDirectory(t)
  const log = writerIn(directory)
  const long = Buffer.alloc(250 * KIB, 'z')
  log.write(long)
  log.close()
  assert.deepEqual(
    filesIn(directory).map((name) => statSync(join(directory, name)).size),
    [100 * KIB, 100 * KIB, 50 * KIB],
  )
  assert.ok(contentOf(directory).equals(long))
})

test('once the next file exists, the one before it never changes', (t) => {
  const directory = temporaryDirectory(t)
  const log = writerIn(directory)
  const complete = new Map<string, number>()
  for (const chunk of chunksOfLines(7, 5000, 20_000, 1024 * KIB)) {
    log.write(chunk)
    for (const name of filesIn(directory).slice(0, -1)) {
      const { size } = statSync(join(directory, name))
      assert.equal(complete.get(name) ?? size, size)
      complete.set(name, size)
    }
  }
  log.close()
  assert.ok(complete.size > 5)
})

test('the next file is created only by a byte that goes into it', (t) => {
  const directory = temporaryDirectory(t)
  const log = writerIn(directory)
  log.write(Buffer.alloc(100 * KIB, 'a'))
  assert.deepEqual(filesIn(directory), ['web.stdout.0'], 'full, and nothing more to write')
  log.write(Buffer.from('b'))
  assert.deepEqual(filesIn(directory), ['web.stdout.0', 'web.stdout.1'])
  log.close()
})

test('purge keeps the newest files', (t) => {
  const directory = temporaryDirectory(t)
  const log = writerIn(directory, { maxFiles: 3 })
  for (let count = 0; count < 7; count++) {
    log.write(Buffer.alloc(100 * KIB, 'a'))
    assert.ok(filesIn(directory).length <= 3)
  }
  log.close()
  assert.deepEqual(filesIn(directory), ['web.stdout.4', 'web.stdout.5', 'web.stdout.6'])
})

test('a restart continues the highest file, also where indexes are missing or names are odd', (t) => {
  const directory = temporaryDirectory(t)
  for (const name of ['web.stdout.3', 'web.stdout.x', 'web.stdout.07', 'web.stderr.20', 'web2.stdout.30']) {
    writeFileSync(join(directory, name), 'old\n')
  }
  writeFileSync(join(directory, 'web.stdout.12'), 'line\nhalf')
  mkdirSync(join(directory, 'web.stdout.40'))
  const log = writerIn(directory, { maxFiles: 2 })
  log.write(Buffer.from(' a line\n'))
  assert.equal(readFileSync(join(directory, 'web.stdout.12'), 'utf8'), 'line\nhalf a line\n')
  log.write(Buffer.alloc(120 * KIB, 'c'))
  log.close()
  assert.ok(statSync(join(directory, 'web.stdout.13')).size > 0)
  assert.throws(() => statSync(join(directory, 'web.stdout.3')), 'purged')
  assert.equal(readFileSync(join(directory, 'web.stdout.x'), 'utf8'), 'old\n')
  assert.equal(readFileSync(join(directory, 'web.stderr.20'), 'utf8'), 'old\n')
})

test('a file or link that another process placed is not written to', (t) => {
  const directory = temporaryDirectory(t)
  const outside = join(temporaryDirectory(t), 'outside')
  writeFileSync(outside, 'mine')
  const log = writerIn(directory)
  symlinkSync(outside, join(directory, 'web.stdout.1'))
  writeFileSync(join(directory, 'web.stdout.2'), 'foreign')
  log.write(Buffer.alloc(100 * KIB, 'a'))
  log.write(Buffer.from('next'))
  log.close()
  assert.equal(readFileSync(outside, 'utf8'), 'mine')
  assert.equal(readFileSync(join(directory, 'web.stdout.2'), 'utf8'), 'foreign')
  assert.equal(readFileSync(join(directory, 'web.stdout.3'), 'utf8'), 'next')
  assert.equal(log.lostBytes, 0)
})

test('bytes that cannot be written are counted and accounted for once they can', (t) => {
  const directory = temporaryDirectory(t)
  const logs = join(directory, 'logs')
  mkdirSync(logs)
  const log = writerIn(logs)
  log.write(Buffer.alloc(100 * KIB, 'a'))
  renameSync(logs, `${logs}.away`) // the next file cannot be created
  log.write(Buffer.from('12345'))
  log.write(Buffer.from('678'))
  assert.equal(log.lostBytes, 8)
  assert.equal(log.lossCause, 'ENOENT')
  assert.equal(log.retry(), false)
  renameSync(`${logs}.away`, logs)
  log.write(Buffer.from('after\n'))
  log.close()
  assert.equal(
    readFileSync(join(logs, 'web.stdout.1'), 'utf8'),
    'outpost: 8 bytes of output are missing here (ENOENT)\nafter\n',
  )
  assert.equal(log.lostBytes, 8)
})
