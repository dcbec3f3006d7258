/** An attacker with access to the disk of a server adds malformed rows to its roster. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { RosterDatabase } from '../../src/storage/store/roster-store.ts'
import { recordingLogger } from '../host/allocations/host-fixture.ts'
import { Member } from '../helpers/cluster.ts'
import { allocationOf, idOf, nodeOf } from '../helpers/fleet-server.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { send } from '../helpers/openbao-replay.ts'

test('malformed rows are skipped and logged, and the other rows are loaded', { timeout: 280_000 }, async (t) => {
  const nats = await startNatsServer(t)
  const server = await Member.make(t, 's1', { role: 'server', natsUrl: nats.url, acl: 'acl { enabled = false }' })
  const [nodeId, allocationId] = [idOf('aaaaaaaa'), idOf('bbbbbbbb')]
  const indexes = { createIndex: 2, modifyIndex: 3 }
  const status = { status: 'ready', statusText: '', statusAtMs: 1, events: [] }
  const record = { node: nodeOf(nodeId), ...status, ...indexes }
  const allocation = { allocation: allocationOf(allocationId), nodeId, modifyTimeMs: 1, ...indexes }
  server.makeDirectory('server')
  const database = RosterDatabase.open(join(server.dataDir, 'server/roster.db'), recordingLogger())
  database.put('node', nodeId, { record, publicKey: 'a2V5' })
  database.put('allocation', allocationId, allocation)
  const wrong = [
    {},
    null,
    7,
    { record: null },
    { ...allocation, modifyIndex: 1e300 },
    { ...allocation, allocation: {} },
  ]
  for (const [at, value] of wrong.entries()) {
    for (const table of ['node', 'allocation', 'claim'] as const) database.put(table, idOf('cccccccc', at), value)
  }
  database.close()
  await server.start()
  const listOf = async (path: string) => {
    const { body } = await send(server.port, { method: 'GET', path, headers: {} })
    return (JSON.parse(body) as { ID: string }[]).map(({ ID }) => ID)
  }
  assert.deepEqual(await listOf('/v1/nodes'), [nodeId])
  assert.deepEqual(await listOf('/v1/allocations'), [allocationId])
  const said = server.stderr.match(/unreadable row in the roster database/g)
  assert.equal(said?.length, wrong.length * 3, server.stderr)
})
