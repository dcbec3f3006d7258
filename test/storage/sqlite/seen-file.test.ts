/** The file `.seen`: another process with access to the directory does not block the writer. */
import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { lstatSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { readSeenFile, SeenFile } from '../../../src/storage/sqlite/seen-file.ts'
import { RollbackCheck } from '../../../src/storage/store/rollback-check.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const MARK = new URL('../../../src/storage/sqlite/seen-file.ts', import.meta.url).href
/** A slow machine needs seconds; a thread that waits for the other end of a pipe waits for ever. */
const PATIENCE_MS = 120_000

const seen = (sequence: number) => ({ cluster: 'c', epoch: 1, sequence })

test('the file has mode 0600 and is written in place', (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const mark = new SeenFile(path)
  t.after(() => mark.close())
  mark.write({ cluster: 'c', epoch: 1, sequence: 1 })
  const { ino, mode } = lstatSync(`${path}.seen`)
  assert.equal(mode & 0o777, 0o600)
  mark.write({ cluster: 'c', epoch: 1, sequence: 2 })
  assert.equal(lstatSync(`${path}.seen`).ino, ino)
  assert.deepEqual(JSON.parse(readFileSync(`${path}.seen`, 'utf8')), { cluster: 'c', epoch: 1, sequence: 2 })
})

test('the file shows an epoch that was raised without a commit', async (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  await store.commit({ puts: [{ path: 'a', value: Buffer.from('1') }], deletes: [] })
  const { sequence } = store.position()
  for (const epoch of [3, 4]) {
    await store.setRole('own', epoch)
    assert.deepEqual([readSeenFile(`${path}.seen`)?.epoch, readSeenFile(`${path}.seen`)?.sequence], [epoch, sequence])
  }
})

test('creates the file again after it was replaced, and leaves the moved file unchanged', (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const mark = new SeenFile(path)
  t.after(() => mark.close())
  mark.write(seen(1))
  renameSync(`${path}.seen`, `${path}.aside`)
  writeFileSync(`${path}.seen`, readFileSync(`${path}.aside`))
  mark.reopenIfReplaced()
  mark.write(seen(2))
  assert.deepEqual([readSeenFile(`${path}.seen`)?.sequence, readSeenFile(`${path}.aside`)?.sequence], [2, 1])
})

test('the generation of the operation token survives commits and restarts until it is replaced or removed', (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const kept = () => readSeenFile(`${path}.seen`)?.generation
  const mark = new SeenFile(path)
  assert.throws(() => mark.setGeneration('a', seen(0)), /empty/)
  mark.setGeneration('a', seen(1))
  mark.write(seen(2))
  // The file of another process takes its place: the next change of the generation finds its own.
  rmSync(`${path}.seen`)
  mark.setGeneration('b', seen(3))
  assert.equal(kept(), 'b')
  mark.close()
  const next = new SeenFile(path)
  t.after(() => next.close())
  next.write(seen(4))
  assert.equal(kept(), 'b')
  next.setGeneration(undefined, seen(4))
  assert.equal(kept(), undefined)
  next.setGeneration('c', seen(4))
  next.remove()
  next.write(seen(5))
  assert.equal(kept(), undefined)
})

test('reports a database that lacks one change, and refuses an empty one while the mark exists', async (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  const note = (sequence: number) =>
    writeFileSync(`${path}.seen`, JSON.stringify({ cluster: store.clusterId, epoch: store.epoch, sequence }))
  note(5)
  const empty = new RollbackCheck(store)
  assert.match(String(empty.warning), /is empty, and this server had written 5 changes/)
  assert.match(String(empty.refusal), /is empty, and this server had written 5 changes/)
  rmSync(`${path}.seen`)
  assert.equal(empty.refusal, undefined, 'the operator has moved it away')
  await store.commit({ puts: [{ path: 'a', value: Buffer.from('1') }], deletes: [] })
  const { sequence } = store.position()
  note(sequence + 1)
  assert.match(String(new RollbackCheck(store).warning), /older than what this server wrote: 1 changes are missing/)
  assert.equal(new RollbackCheck(store).refusal, undefined)
  note(sequence)
  assert.equal(new RollbackCheck(store).warning, undefined)
})

test('a FIFO that replaces the new file does not block the writer, and the next check recovers', async (t) => {
  const directory = temporaryDirectory(t)
  const path = join(directory, 'a.db')
  execFileSync('mkfifo', [join(directory, 'pipe')])
  const program = join(directory, 'program.mjs')
  writeFileSync(
    program,
    `import fs from 'node:fs'
    import { syncBuiltinESMExports } from 'node:module'
    const { renameSync } = fs
    let isFirst = true
    fs.renameSync = (from, to) => {
      renameSync(from, to)
      if (isFirst) renameSync(${JSON.stringify(join(directory, 'pipe'))}, to)
      isFirst = false
    }
    syncBuiltinESMExports()
    const { SeenFile } = await import(${JSON.stringify(MARK)})
    const mark = new SeenFile(${JSON.stringify(path)})
    mark.write({ cluster: 'c', epoch: 1, sequence: 1 })
    console.log(fs.lstatSync(${JSON.stringify(`${path}.seen`)}).isFIFO())
    mark.reopenIfReplaced()
    mark.write({ cluster: 'c', epoch: 1, sequence: 2 })
    mark.close()`,
  )
  const { stdout } = await promisify(execFile)(process.execPath, [program], { timeout: PATIENCE_MS })
  assert.equal(stdout, 'true\n')
  assert.deepEqual(JSON.parse(readFileSync(`${path}.seen`, 'utf8')), { cluster: 'c', epoch: 1, sequence: 2 })
})
