/** A use of a token that cannot be written down, while an audit device is waited for: no rejection is left without a handler. */
import assert from 'node:assert/strict'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { type Call, ANONYMOUS } from '../../src/platform/operation.ts'
import { snapshotOperations } from '../../src/secrets/snapshot-operations.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { tokenPathsIn } from './token-world.ts'

test('a use that cannot be written does not end the process', async (t) => {
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

test('the last use of a token is finished even if no audit device records its request', async (t) => {
  const world = await CoreWorld.open(t)
  const file = join(world.directory, 'audit.log')
  assert.equal((await world.ask('POST', 'sys/audit/file', { type: 'file', options: { file_path: file } })).status, 204)
  const tokens: string[] = []
  for (let at = 0; at < 3; at++) {
    tokens.push(String((await world.ask('POST', 'auth/token/create', { num_uses: 1 })).body.auth['client_token']))
  }
  const before = tokenPathsIn(world).length
  renameSync(file, `${file}.1`)
  writeFileSync(file, 'in the way\n')
  const [read, write, snapshot] = tokens
  assert.equal((await world.ask('GET', 'auth/token/lookup-self', undefined, { token: read })).status, 500)
  assert.equal((await world.ask('POST', 'auth/token/create', {}, { token: write })).status, 500)
  await assert.rejects(savedSnapshot(world, snapshot), /no audit device/)
  rmSync(file)
  for (const token of tokens) {
    assert.equal((await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status, 403)
  }
  assert.ok(before > 6)
  assert.deepEqual(tokenPathsIn(world).length, before - 12, 'nothing is left of the three')
})

/** Asks for a snapshot that is never begun. */
async function savedSnapshot(world: CoreWorld, token: string | undefined): Promise<void> {
  const none = { save: notBegun, restore: notBegun, onSaved: () => undefined }
  const saving = snapshotOperations(world.core, none).find(({ name }) => name === 'secrets.snapshot_save')
  const raw = { params: {}, query: [], headers: {}, body: undefined }
  const { signal } = new AbortController()
  const call: Call = { requestId: 'test', identity: ANONYMOUS, signal, raw, token, hops: 0, remote: '127.0.0.1' }
  const saved = saving?.run({}, call, undefined)
  assert.ok(saved && Symbol.asyncIterator in saved)
  await saved[Symbol.asyncIterator]().next()
  assert.fail('the failure is not logged')
}

async function notBegun(): Promise<never> {
  return assert.fail('it is not begun')
}
