/**
 * An attacker who can write the database of a DR secondary, and has no key, edits its role and its epoch, with correct checksums. The
 * secondary refuses the edit when it is unsealed, and the primary is not fenced.
 */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { crc32 } from 'node:zlib'
import { workDirectory } from '../helpers/agent-process.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { entryCrc } from '../../src/storage/sqlite/rows.ts'

const PATH = 'local/replication/state'
type StateText = Readonly<Record<string, unknown>>

function inDatabase<T>({ directory }: DrServer, work: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(join(directory, 'data/server/secrets.db'), { timeout: 5000 })
  try {
    return work(database)
  } finally {
    database.close()
  }
}

function stateOf(server: DrServer): StateText {
  return inDatabase(server, (database) => {
    const row = database.prepare('SELECT value FROM entries WHERE path = ?').get(PATH)
    return JSON.parse(Buffer.from(row?.['value'] as Uint8Array).toString()) as StateText
  })
}

function writeState(server: DrServer, state: StateText): void {
  const value = Buffer.from(JSON.stringify(state))
  inDatabase(server, (database) => {
    const { sequence } = database.prepare('SELECT sequence FROM entries WHERE path = ?').get(PATH) ?? {}
    const crc = entryCrc(PATH, Number(sequence), value)
    database.prepare('UPDATE entries SET value = ?, crc = ? WHERE path = ?').run(value, crc, PATH)
  })
}

function writeEpoch(server: DrServer, epoch: number): void {
  const crc = crc32(`epoch${epoch}`)
  inDatabase(server, (database) => {
    const put = database.prepare('INSERT OR REPLACE INTO facts (name, value, crc) VALUES (?, ?, ?)')
    put.run('epoch', String(epoch), crc)
  })
}

async function stop({ agent }: DrServer): Promise<void> {
  assert.ok('stop' in agent)
  await agent.stop()
}

test('a role or an epoch that is edited in the database of a secondary is refused at unseal', async (t) => {
  const directory = workDirectory(t)
  const primary = await DrServer.startHere(t, 'a', '', directory)
  const secondary = await DrServer.startHere(t, 'b', '', directory)
  await primary.told('POST', `${DR}/primary/enable`)
  const token = await primary.issue('b')
  await secondary.told('POST', `${DR}/secondary/enable`, { token, insecure: true })
  await secondary.follows(primary)
  await secondary.unseal(primary.keys)
  await eventually(() => stateOf(secondary)['code'] !== undefined, 'the code of the role is written')
  await stop(secondary)
  const good = stateOf(secondary)
  const { code: _, ...uncoded } = good

  const refused = async (found: RegExp) => {
    await secondary.restartHere()
    try {
      await isRefused(found)
    } finally {
      await stop(secondary)
      writeState(secondary, good)
      writeEpoch(secondary, 0)
    }
  }
  const isRefused = async (found: RegExp) => {
    assert.equal(await secondary.health(), 503)
    const [first, last] = primary.keys.shares
    await secondary.told('PUT', 'sys/unseal', { key: first }, '')
    const answer = await secondary.ask('PUT', 'sys/unseal', { key: last }, '')
    assert.equal(answer.status, 500, answer.text)
    assert.match(answer.errors.join(), found)
    assert.match(answer.errors.join(), /changed by another program.*enable it again/)
    assert.equal(await secondary.health(), 503)
    assert.match(await (await fetch(`${secondary.agent.url}/v1/agent/ready`)).text(), /changed by another program/)
    const { fenced_by: fencedBy, state } = await primary.status()
    assert.deepEqual([fencedBy, state], ['', 'running'])
    await primary.told('PUT', 'sys/policies/acl/night', { policy: 'path "kv/*" { capabilities = ["read"] }' })
  }

  await t.test('an epoch that neither the log nor the primary has is refused', async () => {
    writeEpoch(secondary, 9)
    await refused(/fact "epoch".*it is 9, the log is in epoch 0/)
  })
  await t.test('a forged promotion is refused', async () => {
    for (const state of [good, uncoded]) {
      writeState(secondary, { ...state, promoting: 7 })
      await refused(/local\/replication\/state.*a promotion to epoch 7/)
    }
  })
  await t.test('a forged mode "disabled" is refused', async () => {
    for (const state of [good, uncoded]) {
      writeState(secondary, { ...state, mode: 'disabled' })
      await refused(/local\/replication\/state.*mode "disabled"/)
    }
  })
  await t.test('a forged primary role is refused', async () => {
    const fork = (good['forks'] as unknown[])[0] ?? { sequence: 1, epoch: 9, checksum: '' }
    const notice = { upstream: good['upstream'], epoch: 0, fork }
    for (const state of [good, uncoded]) {
      writeState(secondary, { ...state, mode: 'primary', notice })
      await refused(/local\/replication\/state.*mode "primary"/)
    }
  })
  await t.test('the unmodified state is accepted, and a state of an earlier version gets a MAC', async () => {
    writeState(secondary, uncoded)
    // An earlier version has written neither the code nor that there is one.
    const seen = join(secondary.directory, 'data/server/secrets.db.seen')
    const text = JSON.parse(readFileSync(seen, 'utf8')) as Record<string, unknown>
    assert.equal(text['hasRoleCode'], true)
    writeFileSync(seen, JSON.stringify({ ...text, hasRoleCode: undefined }))
    await secondary.restartHere()
    await secondary.unseal(primary.keys)
    await secondary.follows(primary)
    assert.ok(stateOf(secondary)['code'])
    const dr_operation_token = await secondary.operationToken(primary.keys)
    await secondary.told('POST', `${DR}/secondary/promote`, { dr_operation_token }, '')
    await eventually(async () => (await primary.status())['fenced_by'] === 'b', 'a real promotion fences the primary')
  })
})
