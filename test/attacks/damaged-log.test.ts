/**
 * An attacker with access to the disk damages the write-ahead log of a server that was just killed. The last commits,
 * such as a revocation, are lost at the next start, which must report it even within seconds of the kill.
 */
import assert from 'node:assert/strict'
import {
  closeSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { PAGE_BYTES } from '../../src/storage/sqlite/database.ts'
import { RollbackCheck } from '../../src/storage/store/rollback-check.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const FRAME_BYTES = 24 + PAGE_BYTES

async function opened(t: TestContext, directory = temporaryDirectory(t)) {
  const path = join(directory, 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  const write = (name: string) => store.commit({ puts: [{ path: name, value: Buffer.from(name) }], deletes: [] })
  return { directory, path, store, write }
}

/** The files as a kill would leave them, in a directory of their own. */
function killed(t: TestContext, path: string): string {
  const directory = join(temporaryDirectory(t), 'copy')
  mkdirSync(directory)
  const copy = join(directory, 'secrets.db')
  for (const end of ['', '-wal', '.seen']) if (existsSync(path + end)) copyFileSync(path + end, copy + end)
  return copy
}

/** What the next start says. */
async function warningAt(path: string): Promise<string | undefined> {
  const store = await SqliteStore.open(path)
  try {
    return new RollbackCheck(store).warning
  } finally {
    await store.close()
  }
}

function flip(path: string, at: number): void {
  const fd = openSync(path, 'r+')
  const byte = Buffer.alloc(1)
  readSync(fd, byte, 0, 1, at)
  writeSync(fd, Buffer.from([(byte[0] ?? 0) ^ 1]), 0, 1, at)
  closeSync(fd)
}

const DAMAGES: Readonly<Record<string, (log: string) => void>> = {
  'a bit of the last frame': (log) => flip(log, statSync(log).size - 100),
  'the head of the last frame': (log) => flip(log, statSync(log).size - FRAME_BYTES + 8),
  'the last frame cut off': (log) => truncateSync(log, statSync(log).size - FRAME_BYTES),
  'half of the log cut off': (log) => truncateSync(log, Math.floor(statSync(log).size / 2)),
  'the head of the log': (log) => flip(log, 16),
  'the log removed': (log) => rmSync(log),
}

test('commits lost with the end of the log are reported at the start, even if the kill followed immediately', async (t) => {
  const { path, store, write } = await opened(t)
  for (let at = 0; at < 20; at++) await write(`entry-${at}`)
  assert.equal(await warningAt(killed(t, path)), undefined, 'a kill loses nothing')
  for (const [name, damage] of Object.entries(DAMAGES)) {
    const copy = killed(t, path)
    damage(`${copy}-wal`)
    assert.match(
      (await warningAt(copy)) ?? '',
      /older than what this server wrote: \d+ changes are missing|is empty/,
      name,
    )
  }
  await store.raiseEpoch(store.epoch + 1)
  const copy = killed(t, path)
  DAMAGES['the last frame cut off']?.(`${copy}-wal`)
  assert.match((await warningAt(copy)) ?? '', /older than what this server wrote: changes are missing/)
})

test('the mark file is never behind an acknowledged write and never ahead of the database', async (t) => {
  const { path, store, write } = await opened(t)
  const said = () => JSON.parse(readFileSync(`${path}.seen`, 'utf8')) as { sequence: number; cluster: string }
  for (let at = 0; at < 30; at++) {
    const writes = Array.from({ length: (at % 3) + 1 }, (_, each) => write(`entry-${at}-${each}`))
    await Promise.all(writes)
    assert.deepEqual(said(), { cluster: store.clusterId, epoch: store.epoch, sequence: store.position().sequence })
  }
  assert.equal(statSync(`${path}.seen`).mode & 0o777, 0o600)
})

test('a mark file that is removed or replaced under a running server is created again', async (t) => {
  const { directory, path, store, write } = await opened(t)
  await write('first')
  const other = join(directory, 'other')
  const changes = [() => undefined, () => symlinkSync(other, `${path}.seen`), () => mkdirSync(`${path}.seen`)]
  for (const change of changes) {
    rmSync(`${path}.seen`, { force: true, recursive: true })
    change()
    const isDirectory = statSync(`${path}.seen`, { throwIfNoEntry: false })?.isDirectory() === true
    await eventually(async () => {
      await write('next')
      if (isDirectory) return true // a commit does without it
      if (!lstatSync(`${path}.seen`, { throwIfNoEntry: false })?.isFile()) return false
      const text = readFileSync(`${path}.seen`, 'utf8')
      return (JSON.parse(text) as { sequence: number }).sequence === store.position().sequence
    }, 'it is there and true')
    assert.equal(existsSync(other), false, 'no link is followed')
  }
})
