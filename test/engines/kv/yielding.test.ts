/** Requests that read very many secrets let other requests run; small requests do not wait. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Rejection } from '../../../src/engines/framework/engine.ts'
import type { CoreWorld } from '../../helpers/core-world.ts'
import { expectStatus as expect, openKv, tokenWith } from '../../helpers/kv-world.ts'
import { countTurns } from '../../helpers/event-loop-turns.ts'

const MANY = 6000

/** `many/` with so many secrets, 10 of them with a folder each, and `few/` with 40. */
async function plant(world: CoreWorld, many = MANY): Promise<void> {
  const make = async (folder: string, from: number, count: number) => {
    const names = Array.from({ length: count }, (_, at) => `${folder}/s${String(from + at).padStart(5, '0')}`)
    const secrets = Object.fromEntries(names.map((name) => [name, { data: { x: 1 } }]))
    await expect(world, 200, 'POST', 'secret/import', { secrets })
  }
  for (let from = 0; from < many - 10; from += 599) await make('many', from, 599)
  for (let at = 0; at < 10; at++) await make(`many/f${at}`, 0, 1)
  await make('few', 0, 40)
}

async function turnsOf(work: () => Promise<unknown>): Promise<number> {
  // A turn that the request before has begun is not counted.
  await new Promise(setImmediate)
  const turns = countTurns()
  await work()
  return turns.end()
}

test('listing very many secrets lets other requests run', async (t) => {
  const world = await openKv(t)
  await plant(world)
  const blind = await tokenWith(
    world,
    'path "secret/search/*" { capabilities = ["read"] } path "secret/export/*" { capabilities = ["read"] } path "secret/metadata/*" { capabilities = ["list", "scan"] }',
  )
  const asked = (method: string, path: string, token?: string) =>
    world.ask(method, `secret/${path}`, undefined, { token })
  const requests = [
    ['GET', 'search/many', blind, 5],
    ['GET', 'export/many', blind, 5],
    ['GET', 'search/many?name=zzz', undefined, 4],
    ['GET', 'export/many', undefined, 4],
    ['LIST', 'metadata/many', undefined, 5],
    ['SCAN', 'metadata/many', undefined, 5],
    ['LIST', 'detailed-metadata/many', undefined, 20],
    ['SCAN', 'detailed-metadata/many', undefined, 20],
    ['SCAN', 'metadata/many?exclude_deleted=true', undefined, 20],
  ] as const
  for (const [method, path, token, turns] of requests) {
    const seen = await turnsOf(async () => assert.ok([200, 404].includes((await asked(method, path, token)).status)))
    assert.ok(seen >= turns, `${method} ${path}: ${seen} turns`)
  }
  await expect(world, 204, 'POST', 'secret/config', { list_filter: true })
  const seen = await turnsOf(() => asked('LIST', 'metadata/many', blind))
  assert.ok(seen >= 10, `a filtered list: ${seen} turns`)
  await expect(world, 204, 'POST', 'secret/config', { list_filter: false })
  // What a rule leaves of a list is found in turns too.
  const rule = 'capabilities = ["list", "scan"] list_scan_response_keys_filter_path = "{{ .path }}{{ .key }}"'
  const narrow = await tokenWith(
    world,
    `path "secret/metadata/many" { ${rule} } path "secret/metadata/many/s*" { capabilities = ["read"] }`,
  )
  const plain = await turnsOf(() => asked('LIST', 'metadata/many'))
  let kept: unknown = []
  const narrowed = await turnsOf(async () => {
    kept = (await asked('LIST', 'metadata/many', narrow)).body.data['keys']
  })
  assert.equal((kept as string[]).length, MANY - 10)
  assert.ok(narrowed >= plain + 5, `${plain} turns for the list, ${narrowed} with what is left of it`)
  // A short list is one state and does not yield.
  for (const [method, path, token] of requests) {
    const few = path.replace('many', 'few')
    // Turns are by time: a busy machine may add one.
    const turns = await turnsOf(() => asked(method, few, token))
    assert.ok(turns <= 1, `${method} ${few}: ${turns} turns`)
  }
  // And all are there.
  const { data } = await expect(world, 200, 'SCAN', 'secret/detailed-metadata/many')
  assert.equal((data['keys'] as string[]).length, MANY)
  assert.equal(Object.keys(data['key_info'] as object).length, MANY)
  const { data: told } = await expect(world, 200, 'GET', 'secret/search/many?limit=1000')
  assert.equal((told['found'] as unknown[]).length, 1000)
  assert.equal(told['next'], 's00999')
  assert.equal((await asked('GET', 'export/many', blind)).body.data['left_out'], MANY)
})

test('a running list ends with 503 once sealed and with 404 once the mount is disabled', async (t) => {
  const world = await openKv(t)
  await plant(world, 2 * 599 + 10)
  const sealed = world.ask('SCAN', 'secret/detailed-metadata')
  await world.core.seal()
  assert.equal((await sealed).status, 503)
  world.unseal()
  const mount = world.core.open.mounts.get('secret/')
  assert.ok(mount)
  const left = world.ask('SCAN', 'secret/detailed-metadata')
  await mount.viewScope.revoke(() => new Rejection(404, 'this mount has been disabled'))
  const { body, status } = await left
  assert.deepEqual([status, body.errors], [404, ['this mount has been disabled']])
})
