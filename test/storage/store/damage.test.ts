/** Damaged databases: each kind of damage is reported, and no damaged entry is returned. */
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { migrate } from '../../../src/storage/sqlite/database.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { EVERY_ROW } from '../../helpers/every-row.ts'
import { Random } from '../../helpers/frames.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

/** How many bits are flipped, each in a copy of its own; `FLIPS=2000` for a long look. */
const FLIPS = Number(process.env['FLIPS'] ?? 24)

const put = (path: string, value = path) => ({ path, value: Buffer.from(value) })

let filledBytes: Buffer | undefined

/** A database with some hundred entries, closed; made once. */
async function filled(t: TestContext): Promise<string> {
  const path = join(temporaryDirectory(t), 'secrets.db')
  if (filledBytes) {
    writeFileSync(path, filledBytes)
    return path
  }
  const store = await SqliteStore.open(path)
  const random = new Random(8)
  await Promise.all(
    Array.from({ length: 300 }, (_, at) => {
      const value = Buffer.alloc(random.pick([20, 300, 1500, 9000] as const), at)
      return store.commit({
        puts: [{ path: `d${at % 5}/${at}`, value }],
        deletes: at % 9 === 8 ? [`d${(at - 1) % 5}/${at - 1}`] : [],
      })
    }),
  )
  await store.close()
  assert.ok(!existsSync(`${path}-wal`))
  assert.deepEqual(checkDatabase(path), [])
  filledBytes = readFileSync(path)
  return path
}

/** Everything that the database holds, as one text; throws when it cannot be read. */
async function contentsOf(path: string): Promise<string> {
  const store = await SqliteStore.open(path)
  try {
    const entries = store
      .paths('')
      .map((name) => `${name} ${Buffer.from(store.get(name)?.value ?? []).toString('hex')}`)
    const rows = store
      .rowsAfter(0, EVERY_ROW)
      .map(
        ({ sequence, epoch, atMs, checksum }) =>
          `${sequence} ${epoch} ${atMs} ${Buffer.from(checksum).toString('hex')}`,
      )
    return [store.clusterId, store.epoch, ...entries, ...rows].join('\n')
  } finally {
    await store.close()
  }
}

test('refuses a text file, a foreign database, an empty file and a newer version without changing them', async (t) => {
  const directory = temporaryDirectory(t)
  const file = (name: string) => join(directory, name)
  writeFileSync(
    file('text.db'),
    'no database at all, but long enough to be looked at closely, as it has a hundred bytes and some more',
  )
  writeFileSync(file('empty.db'), '')
  const foreign = new DatabaseSync(file('foreign.db'))
  foreign.exec('CREATE TABLE things (x)')
  foreign.close()
  const newer = await filled(t)
  const raised = new DatabaseSync(newer)
  raised.exec('PRAGMA user_version = 99')
  raised.close()
  const cases = [
    [file('text.db'), /damaged \(no SQLite header/],
    [file('empty.db'), /damaged \(the file is truncated/],
    [file('foreign.db'), /not a database of outpost/],
    [newer, /newer version of outpost \(99\)/],
  ] as const
  for (const [path, expected] of cases) {
    const before = readFileSync(path)
    await assert.rejects(SqliteStore.open(path), expected)
    assert.match(checkDatabase(path).join('\n'), expected)
    assert.ok(readFileSync(path).equals(before), path)
  }
  const gone = await filled(t)
  rmSync(gone)
  writeFileSync(`${gone}-wal`, 'what was left')
  await assert.rejects(SqliteStore.open(gone), /is missing and .*-wal exists/)
  assert.ok(!existsSync(gone))
})

test('refuses a database that was truncated anywhere', async (t) => {
  const path = await filled(t)
  const whole = readFileSync(path)
  const random = new Random(4)
  const lengths = [0, 50, 100, 4095, 4096, whole.length - 4096, whole.length - 1]
  for (let count = 0; count < 4; count++) lengths.push(random.between(1, whole.length - 1))
  for (const length of lengths) {
    writeFileSync(path, whole)
    truncateSync(path, length)
    await assert.rejects(SqliteStore.open(path), /secrets\.db is damaged/, `cut to ${length}`)
    assert.ok(checkDatabase(path).length > 0, `cut to ${length}`)
  }
})

test('the check finds a flipped bit anywhere unless it has no effect on the content', async (t) => {
  const path = await filled(t)
  const whole = readFileSync(path)
  const contents = await contentsOf(path)
  const seed = Number(process.env['OUTPOST_SEED'] ?? 17)
  t.diagnostic(`OUTPOST_SEED=${seed}`)
  const random = new Random(seed)
  let found = 0
  for (let count = 0; count < FLIPS; count++) {
    // A third of them in the header and the roots of the tables, where they do most.
    const at = count % 3 === 0 ? random.between(0, 6 * 4096) : random.between(0, whole.length - 1)
    const changed = Buffer.from(whole)
    changed[at] = (changed[at] ?? 0) ^ (1 << random.between(0, 7))
    writeFileSync(path, changed)
    const findings = checkDatabase(path)
    if (findings.length > 0) found++
    else assert.ok((await contentsOf(path)) === contents, `byte ${at}: not found, and the contents are others`)
  }
  assert.ok(found > FLIPS / 2, `${found} of ${FLIPS} were found`)
})

test('a damaged entry is reported on its read, and damage in the newest log rows at the start', async (t) => {
  const path = await filled(t)
  const change = (sql: string) => {
    const database = new DatabaseSync(path)
    database.exec(sql)
    database.close()
  }
  change(`UPDATE entries SET value = zeroblob(length(value)) WHERE path = 'd0/10'`)
  const store = await SqliteStore.open(path)
  assert.throws(() => store.get('d0/10'), /the entry d0\/10 is damaged/)
  assert.throws(() => store.pending('d0/10'), /the entry d0\/10 is damaged/)
  assert.ok(store.get('d1/11'))
  await store.close()
  change('UPDATE log SET epoch = 9 WHERE sequence = 290')
  await assert.rejects(SqliteStore.open(path), /damaged \(the checksum of log row 29[01] does not match/)
})

test('a second process is refused until the first one has ended', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const child = spawn(process.execPath, [join(import.meta.dirname, 'crash-writer.ts'), path, '1', '0'])
  let said = ''
  child.stdout.on('data', (bytes: Buffer) => (said += bytes.toString()))
  await eventually(() => said.length > 0)
  await assert.rejects(SqliteStore.open(path), /in use by another process/)
  assert.deepEqual([child.exitCode, child.signalCode], [null, null])
  child.kill('SIGKILL')
  await once(child, 'close')
  const store = await SqliteStore.open(path)
  await assert.rejects(SqliteStore.open(path), /in use by another process/)
  await store.commit({ puts: [put('a')], deletes: [] })
  await store.close()
  await (await SqliteStore.open(path)).close()
})

test('migrates a database of an older version, each step atomically', (t) => {
  const path = join(temporaryDirectory(t), 'old.db')
  const database = new DatabaseSync(path)
  t.after(() => database.close())
  const steps = ['CREATE TABLE a (x);', 'CREATE TABLE b (x); INSERT INTO a VALUES (1);']
  const version = () => database.prepare('PRAGMA user_version').get()?.['user_version']
  migrate(database, path, steps.slice(0, 1))
  assert.equal(version(), 1)
  assert.throws(
    () => migrate(database, path, [...steps.slice(0, 1), 'CREATE TABLE b (x); CREATE TABLE a (x);']),
    /already exists/,
  )
  assert.equal(version(), 1)
  migrate(database, path, steps)
  migrate(database, path, steps)
  assert.equal(version(), 2)
  assert.equal(database.prepare('SELECT count(*) AS count FROM a').get()?.['count'], 1)
  assert.throws(() => migrate(database, path, steps.slice(0, 1)), /newer version/)
})

test('deleted content is in no file once the store is idle', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const nothingKept = { bytesMax: 0, ageMaxMs: 0, behindBytesMax: 0 }
  const store = await SqliteStore.open(path, { log: nothingKept })
  t.after(() => store.close())
  const mark = 'removed-value-that-is-searched-for'
  await store.commit({
    puts: [put('small', mark), { path: 'large', value: Buffer.alloc(100_000, mark) }, put('kept')],
    deletes: [],
  })
  await store.commit({ puts: [put('small', 'other')], deletes: ['large'] })
  await store.commit({ puts: [put('last')], deletes: [] })
  const files = () => [path, `${path}-wal`].filter((file) => existsSync(file))
  await eventually(() => statSync(`${path}-wal`).size === 0)
  for (const file of files()) assert.equal(readFileSync(file).indexOf(mark), -1, file)
  assert.ok(readFileSync(path).includes('kept'))
  const copy = `${path}.copy`
  copyFileSync(path, copy)
  assert.equal(
    execFileSync('sh', ['-c', `grep -c ${mark} ${copy} || true`])
      .toString()
      .trim(),
    '0',
  )
})
