/** Which requests share a request to the active server for its newest row. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ReadIndex } from '../../../src/daemon/standby/read-index.ts'
import type { ActiveRows } from '../../../src/ha/active-rows.ts'

test('a request does not share one that was sent before it arrived, and later ones share the next', async () => {
  const sent: ((rows: ActiveRows) => void)[] = []
  const index = new ReadIndex(() => new Promise((resolve) => sent.push(resolve)))
  const first = index.request()
  const later = [index.request(), index.request()]
  assert.equal(sent.length, 1)
  sent[0]?.({ newest: 1, visible: 1 })
  assert.equal((await first)?.newest, 1)
  assert.equal(sent.length, 2)
  const last = index.request()
  sent[1]?.({ newest: 2, visible: 2 })
  for (const request of later) assert.equal((await request)?.newest, 2)
  sent[2]?.({ newest: 3, visible: 3 })
  assert.equal((await last)?.newest, 3)
  assert.equal(sent.length, 3)
})
