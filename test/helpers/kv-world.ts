/** A core with versioned secrets at `secret/`. */
import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { kv, kvEngine, type KvOptions } from '../../src/engines/kv/kv.ts'
import { encodeRecord, MOUNTS_PREFIX, newRecord } from '../../src/secrets/mounts/mount-record.ts'
import { CoreWorld } from './core-world.ts'

export async function openKv(t: TestContext, version: '1' | '2' = '2', options?: KvOptions): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { engines: [options ? kvEngine(options) : kv] })
  await addKv(world, version)
  return world
}

/** Enables the mount `secret/`. */
export async function addKv(world: CoreWorld, version: '1' | '2' = '2'): Promise<void> {
  const record = newRecord({ path: 'secret/', type: 'kv', options: { version } })
  await world.core.barrier.commit({
    puts: [{ path: MOUNTS_PREFIX + record.uuid, value: encodeRecord(record) }],
    deletes: [],
  })
  world.core.open.mounts.attach(record)
}

/** The data and metadata of a version, for any status. */
export async function readSecret(world: CoreWorld, name: string, query = '') {
  const { body, status } = await world.ask('GET', `secret/data/${name}${query}`)
  const { data, metadata } = (body.data ?? {}) as { data?: unknown; metadata?: Record<string, unknown> }
  return { status, data, metadata }
}

/** Writes a version, with `cas` if given. Fails if the write fails. */
export async function writeSecret(world: CoreWorld, name: string, data: unknown, cas?: number) {
  const answer = await world.ask('POST', `secret/data/${name}`, {
    data,
    ...(cas !== undefined && { options: { cas } }),
  })
  assert.equal(answer.status, 200, answer.text)
  return answer.body.data
}

/** Sends a request and fails with the response text unless it has this status. */
export async function expectStatus(world: CoreWorld, status: number, method: string, path: string, body?: unknown) {
  const answer = await world.ask(method, path, body)
  assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`)
  return answer.body
}

/** A token with one policy. */
export async function tokenWith(world: CoreWorld, policy: string): Promise<string> {
  const name = `p${Math.random().toString(36).slice(2)}`
  await expectStatus(world, 204, 'PUT', `sys/policies/acl/${name}`, { policy })
  const made = await world.ask('POST', 'auth/token/create', { policies: [name], no_default_policy: true })
  return String(made.body.auth['client_token'])
}
