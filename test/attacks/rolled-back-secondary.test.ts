/**
 * An attacker who can write the database of a DR secondary but has no key restores old rows, each a valid ciphertext
 * under its path. They must grant nothing, prevent a promotion, and be repaired from the primary.
 */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'

interface Row {
  readonly path: string
  readonly sequence: number
  readonly crc: number
  readonly value: SQLInputValue
}

const SECONDARY = `${DR}/secondary`
const TOKEN_ENTRY = 'local/replication/operation-token'
const ANONYMOUS = ''

/** The rows of the entries in a database that is in use. */
function rowsOf({ directory }: DrServer): Map<string, Row> {
  return inDatabase(directory, (database) => {
    const rows = database.prepare('SELECT path, sequence, crc, value FROM entries').all() as unknown as Row[]
    return new Map(rows.map((row) => [row.path, row]))
  })
}

function putBack({ directory }: DrServer, rows: Iterable<Row>): void {
  inDatabase(directory, (database) => {
    const put = database.prepare('INSERT OR REPLACE INTO entries (path, sequence, crc, value) VALUES (?, ?, ?, ?)')
    for (const { path, sequence, crc, value } of rows) put.run(path, sequence, crc, value)
  })
}

function inDatabase<T>(directory: string, work: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(join(directory, 'data/server/secrets.db'), { timeout: 5000 })
  try {
    return work(database)
  } finally {
    database.close()
  }
}

/** Rows of `before` that are not in `now`, or are others: what was deleted or replaced between the two. */
function changed(before: ReadonlyMap<string, Row>, now: ReadonlyMap<string, Row>): Row[] {
  return [...before.values()].filter(({ path, sequence }) => {
    const isOwn = path.startsWith('local/') || path === 'core/head'
    return !isOwn && now.get(path)?.sequence !== sequence
  })
}

async function pairHere(t: Parameters<typeof DrServer.startHere>[0]) {
  const directory = workDirectory(t)
  const primary = await DrServer.startHere(t, 'a', '', directory)
  const secondary = await DrServer.startHere(t, 'b', '', directory)
  await primary.told('POST', `${DR}/primary/enable`)
  await secondary.told('POST', `${SECONDARY}/enable`, { token: await primary.issue('b'), insecure: true })
  await secondary.follows(primary)
  await secondary.unseal(primary.keys)
  return { primary, secondary }
}

async function stopHere({ agent }: DrServer): Promise<void> {
  assert.ok('stop' in agent)
  await agent.stop()
}

test('rolled-back rows in the database of a secondary are refused', async (t) => {
  const { primary, secondary } = await pairHere(t)
  const refused = async (status: number, text: RegExp, path: string, dr_operation_token: string, more: object = {}) => {
    const answer = await secondary.ask('POST', `${SECONDARY}/${path}`, { dr_operation_token, ...more }, ANONYMOUS)
    assert.equal(answer.status, status, answer.text)
    assert.match(answer.errors.join(), text)
    assert.equal((await secondary.status())['mode'], 'secondary')
  }

  await t.test('a restored entry of a deleted operation token is refused, also after a restart', async () => {
    const token = await secondary.operationToken(primary.keys)
    const entry = rowsOf(secondary).get(TOKEN_ENTRY)
    assert.ok(entry)
    await secondary.told('POST', `${SECONDARY}/operation-token/delete`, { dr_operation_token: token }, ANONYMOUS)
    // Deleted, and then replaced by a newer one, which replaces its entry.
    for (const isReplaced of [false, true]) {
      if (isReplaced) await secondary.operationToken(primary.keys)
      putBack(secondary, [entry])
      await stopHere(secondary)
      await secondary.restartHere()
      await secondary.unseal(primary.keys)
      await refused(403, /is no longer valid.*Generate a new operation token/, 'promote', token)
      await refused(403, /./, 'disable', token, { force: true })
    }
  })

  await t.test('a token is refused if the file with its generation was removed, and a new one is valid', async () => {
    const token = await secondary.operationToken(primary.keys)
    await stopHere(secondary)
    const seen = join(secondary.directory, 'data/server/secrets.db.seen')
    const text = JSON.parse(readFileSync(seen, 'utf8')) as Record<string, unknown>
    writeFileSync(seen, JSON.stringify({ ...text, generation: undefined }))
    await secondary.restartHere()
    await secondary.unseal(primary.keys)
    await refused(403, /secrets\.db\.seen/, 'merkle-check', token)
    const newer = await secondary.operationToken(primary.keys)
    await secondary.told('POST', `${SECONDARY}/merkle-check`, { dr_operation_token: newer }, ANONYMOUS)
    await stopHere(secondary)
    await secondary.restartHere()
    await secondary.unseal(primary.keys)
    await secondary.told('POST', `${SECONDARY}/merkle-check`, { dr_operation_token: newer }, ANONYMOUS)
  })

  await t.test(
    'a rolled-back policy grants nothing, prevents a promotion, and is repaired from the primary',
    async () => {
      const policy = `path "${SECONDARY}/*" { capabilities = ["update", "sudo"] }`
      await primary.told('PUT', 'sys/policies/acl/night', { policy })
      const batch = { type: 'batch', policies: ['night'], ttl: '8h', no_parent: true }
      const { body } = await primary.told('POST', 'auth/token/create', batch)
      const night = String((body['auth'] as Record<string, unknown>)['client_token'])
      await secondary.follows(primary)
      await secondary.told('POST', `${SECONDARY}/merkle-check`, { dr_operation_token: night }, ANONYMOUS)
      const before = rowsOf(secondary)
      await primary.told('DELETE', 'sys/policies/acl/night')
      await secondary.follows(primary)
      const token = await secondary.operationToken(primary.keys)
      await refused(403, /permission denied/, 'promote', night)
      const rows = changed(before, rowsOf(secondary))
      assert.ok(rows.length > 0)
      // The primary is away: nothing repairs it meanwhile.
      await stopHere(primary)
      putBack(secondary, rows)
      // It may still remember that the entry is not there.
      await stopHere(secondary)
      await secondary.restartHere()
      await secondary.unseal(primary.keys)
      const found = /changed by another program: some entries are older.*Nothing was done\..*from its primary.*"force"/
      await refused(500, found, 'merkle-check', night)
      await refused(500, found, 'promote', night)
      for (const force of [false, true]) await refused(500, found, 'promote', token, { force })
      const asked = await secondary.ask('POST', `${SECONDARY}/generate-public-key`, {}, primary.keys.token)
      assert.equal(asked.status, 500, asked.text)
      await primary.restartHere()
      await primary.unseal(primary.keys)
      await eventually(() => !rowsOf(secondary).has(rows[0]?.path ?? ''), 'it is repaired from the primary')
      await secondary.follows(primary)
      await secondary.told('POST', `${SECONDARY}/promote`, { dr_operation_token: token }, ANONYMOUS)
      assert.equal((await secondary.status())['mode'], 'primary')
      const read = await secondary.ask('GET', 'sys/policies/acl/night', undefined, primary.keys.token)
      assert.equal(read.status, 404)
    },
  )
})
