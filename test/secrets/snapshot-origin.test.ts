/** A snapshot that is restored without a token, where there is no core and no audit device yet, is recorded by the first there are. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { test } from 'node:test'
import { type Call, ANONYMOUS } from '../../src/platform/operation.ts'
import { snapshotOperations } from '../../src/secrets/snapshot-operations.ts'
import { restoreSnapshot, saveSnapshot } from '../../src/storage/snapshot/snapshot.ts'
import { assertWhole, auditLinesIn } from '../helpers/audit-lines.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'

async function snapshotOf(world: CoreWorld): Promise<Buffer> {
  const out = new PassThrough()
  const [bytes] = await Promise.all([buffer(out), saveSnapshot(world.store, out, {})])
  return bytes
}

async function restoredAnew(world: CoreWorld, snapshot: Buffer): Promise<void> {
  const operations = snapshotOperations(world.core, {
    save: async () => assert.fail('nothing is saved'),
    restore: (input, options) => restoreSnapshot(world.store, input, options),
    onSaved: () => undefined,
  })
  const restoreNew = operations.find(({ name }) => name === 'secrets.snapshot_restore_new')
  const raw = { params: {}, query: [], headers: {}, body: undefined }
  const { signal } = new AbortController()
  const of = {
    requestId: 'the-restore',
    identity: ANONYMOUS,
    signal,
    raw,
    token: undefined,
    hops: 0,
    remote: '10.1.2.3',
  }
  const call: Call = {
    ...of,
    body: (async function* () {
      yield snapshot
    })(),
  }
  await restoreNew?.run({}, call, undefined)
}

test('the audit devices of a snapshot record its restore once when they are first enabled', async (t) => {
  const first = await CoreWorld.open(t)
  const file = join(first.directory, 'audit.log')
  assert.equal((await first.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })).status, 204)
  const snapshot = await snapshotOf(first)
  const { unsealKey, rootToken } = first
  await first.close()
  const world = await CoreWorld.open(t, { raw: true })
  await restoredAnew(world, snapshot)
  assert.deepEqual(auditLinesIn(file).filter(isOrigin), [])
  Object.assign(world, { unsealKey, rootToken })
  world.unseal()
  await eventually(() => world.core.options.seal.origin.read() === undefined, 'it is recorded')
  const lines = auditLinesIn(file).filter(isOrigin)
  assert.deepEqual(
    lines.map(({ request, type }) => [type, request['operation'], request['remote_address'], request['id']]),
    [
      ['request', 'update', '10.1.2.3', 'the-restore'],
      ['response', 'update', '10.1.2.3', 'the-restore'],
    ],
  )
  await world.core.seal()
  world.unseal()
  assert.equal((await world.ask('GET', 'auth/token/lookup-self')).status, 200)
  assert.equal(auditLinesIn(file).filter(isOrigin).length, 2)
  await assertWhole(file)
})

test('the restore of a snapshot without audit devices leaves no record pending', async (t) => {
  const first = await CoreWorld.open(t)
  const snapshot = await snapshotOf(first)
  const { unsealKey } = first
  await first.close()
  const world = await CoreWorld.open(t, { raw: true })
  await restoredAnew(world, snapshot)
  Object.assign(world, { unsealKey })
  world.unseal()
  await eventually(() => world.core.options.seal.origin.read() === undefined, 'nothing waits')
})

function isOrigin({ request }: { readonly request?: Readonly<Record<string, unknown>> }): boolean {
  return request?.['path'] === 'sys/storage/snapshot-new'
}
