/** A core with versioned secrets at `secret/`. */
import type { TestContext } from 'node:test'
import { kv } from '../../src/engines/kv/kv.ts'
import { encodeRecord, MOUNTS_PREFIX, newRecord } from '../../src/secrets/mount-record.ts'
import { CoreWorld } from './core-world.ts'

export async function openKv(t: TestContext): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { engines: [kv] })
  const record = newRecord({ path: 'secret/', type: 'kv', options: { version: '2' } })
  await world.core.barrier.commit({
    puts: [{ path: MOUNTS_PREFIX + record.uuid, value: encodeRecord(record) }],
    deletes: [],
  })
  world.core.open.mounts.place(record)
  return world
}
