/** A list of any length is sent in slices: what was not asked for yet is not read, and others get turns in between. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type RecordList, streamList } from '../../../src/cluster/api/listing.ts'
import type { ListInput } from '../../../src/cluster/api/query.ts'
import { startFleetServer } from '../../helpers/fleet-server.ts'
import { callOf } from '../../host/allocations/host-fixture.ts'

const RECORDS = 200_000
const ALL: ListInput = {
  region: undefined,
  index: 0,
  wait: 0,
  filter: undefined,
  per_page: 0,
  next_token: undefined,
  reverse: false,
}

/** A list of numbers, and how many of them were read. */
function counted() {
  const read = { count: 0 }
  const list: RecordList<number> = {
    topic: { kind: 'nodes' },
    *records() {
      for (let record = 0; record < RECORDS; record++) {
        read.count++
        yield record
      }
    },
    tokenOf: String,
    text: (record) => `{"ID":"${record}"}`,
    filtered: { fields: new Set(['ID']), value: (record) => ({ ID: String(record) }) },
  }
  return { list, read }
}

test('the first bytes of a long list are sent before its records are read', async (t) => {
  const { api } = await startFleetServer(t)
  const { list, read } = counted()
  const chunks = streamList(api.queries, list, ALL, callOf())[Symbol.asyncIterator]()
  await chunks.next() // the head
  const { value } = await chunks.next()
  assert.ok(value instanceof Uint8Array && value.length > 1024)
  assert.ok(read.count < RECORDS / 10, `${read.count} records were read`)
  await chunks.return?.(undefined)
})

test('a filter without matches lets other requests run', async (t) => {
  const { api } = await startFleetServer(t)
  const { list, read } = counted()
  let turns = 0
  const count = () => {
    turns++
    if (read.count < RECORDS) setImmediate(count)
  }
  setImmediate(count)
  let text = ''
  for await (const chunk of streamList(api.queries, list, { ...ALL, filter: 'ID == none' }, callOf())) {
    if (chunk instanceof Uint8Array) text += Buffer.from(chunk).toString()
  }
  assert.equal(text, '[]')
  assert.ok(turns > 10, `${turns} turns`)
})
