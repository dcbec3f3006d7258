/** An isolated core, as in a drill, reads its entries and changes nothing outside, even if work is due. */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { cloud } from '../../src/engines/cloud/cloud.ts'
import { cubbyhole } from '../../src/engines/cubbyhole/cubbyhole.ts'
import type { Engine } from '../../src/engines/framework/engine.ts'
import { isolatedEngine } from '../../src/secrets/open-core.ts'
import { CloudWorld } from '../helpers/cloud-world.ts'
import { CoreWorld } from '../helpers/core-world.ts'

test('an engine that does any work outside keeps neither that work nor its paths', () => {
  const work = { forget: () => undefined, periodic: async () => undefined, renew: async () => undefined }
  const more = { release: async () => undefined, revoke: () => undefined }
  for (const [name, outward] of Object.entries({ ...work, ...more })) {
    const engine: Engine = { ...cubbyhole, [name]: outward }
    const isolated = isolatedEngine(engine)
    assert.deepEqual([isolated.paths, Reflect.get(isolated, name)], [[], undefined], name)
  }
  assert.equal(isolatedEngine(cubbyhole), cubbyhole)
})

test('an isolated core leaves due leases, rotations, tokens and audit devices unchanged', async (t) => {
  const own = await CloudWorld.open(t)
  await own.userRole('app')
  await own.good('POST', 'sys/policies/acl/app', { policy: 'path "*" { capabilities = ["read", "update"] }' })
  const create = async (body: object) => {
    const { body: made } = await own.good('POST', 'auth/token/create', body)
    return String(made.auth['client_token'])
  }
  const lastUse = await create({ policies: ['root'], num_uses: 2 })
  const short = await create({ policies: ['app'], ttl: '60s' })
  const leased: string[] = []
  for (const token of [own.world.rootToken, short, lastUse]) {
    const { body } = await own.world.ask('GET', 'cloud/creds/app', undefined, { token })
    leased.push(String(body['lease_id']))
  }
  const users = own.users()
  assert.equal(users.length, 3)
  const audit = join(own.world.directory, 'audit')
  mkdirSync(audit)
  const file = join(audit, 'lines.log')
  await own.good('POST', 'sys/audit/file', { type: 'file', options: { file_path: file } })
  const { directory, keys, nowMs } = own.world
  await own.world.close()
  own.aws.journal.length = 0
  const lines = readFileSync(file)

  own.world = await CoreWorld.reopen(directory, keys, { nowMs, engines: [cloud], isIsolated: true })
  const { core } = own.world
  // Its last use takes the token back, and with it what hangs on it.
  assert.equal((await own.world.ask('GET', 'sys/auth', undefined, { token: lastUse })).status, 200)
  await core.open.revocation.resume()
  own.pass(90 * 86_400)
  await Promise.all([own.sweep(), own.work(), core.open.tokenExpiry.tick()])
  assert.equal((await own.ask('GET', 'cloud/creds/app')).status, 404)
  assert.deepEqual(own.aws.journal, [])
  assert.deepEqual(own.users(), users)
  assert.deepEqual(readFileSync(file), lines)
  for (const id of leased.slice(0, 2)) assert.equal(core.leases.find(id).id, id)
  assert.equal((await own.ask('GET', 'sys/auth')).status, 200)
})
