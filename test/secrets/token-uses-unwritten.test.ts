/** A use of a token that cannot be written down, while an audit device is waited for: no rejection is left without a handler. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { CoreWorld } from '../helpers/core-world.ts'
import { steppedStore } from '../helpers/stepped-store.ts'

test('a full disk under a token with limited uses ends no process', async (t) => {
  let isFull = false
  const world = await CoreWorld.open(t, {
    wrap: (real) => {
      const store = steppedStore(real, () => undefined)
      return {
        ...store,
        commit: (batch) => (isFull ? Promise.reject(new Error('the disk is full')) : store.commit(batch)),
      }
    },
  })
  const device = { type: 'file', options: { file_path: join(world.directory, 'audit.log') } }
  assert.equal((await world.ask('POST', 'sys/audit/file', device)).status, 204)
  const token = String((await world.ask('POST', 'auth/token/create', { num_uses: 5 })).body.auth['client_token'])
  let unhandled = 0
  const count = () => unhandled++
  process.on('unhandledRejection', count)
  t.after(() => process.off('unhandledRejection', count))
  isFull = true
  await assert.rejects(world.ask('POST', 'auth/token/renew-self', {}, { token }), /the disk is full/)
  for (let turns = 0; turns < 10; turns++) await turn()
  isFull = false
  assert.equal(unhandled, 0)
})
