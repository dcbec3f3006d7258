/** Tokens of a primary on its secondary: what bounds them there, and what of them is written. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../../helpers/core-world.ts'
import { ScriptedReplication } from '../../helpers/scripted-replication.ts'

const DR = 'sys/replication/dr'

test('a secondary accepts a token within its bound addresses and TTL, and never one with limited uses', async (t) => {
  const replication = new ScriptedReplication()
  const world = await CoreWorld.open(t, { replication })
  replication.world = world
  const told = async (path: string, body?: object) => {
    const answer = await world.ask('POST', path, body)
    assert.equal(answer.status, 200, answer.text)
    return answer.body
  }
  const target = `${DR}/secondary/generate-public-key`
  const policy = `path "${target}" { capabilities = ["update", "sudo"] }
    path "${DR}/secondary/merkle-check" { capabilities = ["update"] }
    path "${DR}/secondary/promote" { capabilities = ["update"] }`
  assert.equal((await world.ask('PUT', 'sys/policies/acl/night', { policy })).status, 204)
  const bound = { allowed_policies: 'night', orphan: true, token_bound_cidrs: '10.1.0.0/16' }
  assert.equal((await world.ask('POST', 'auth/token/roles/bound', bound)).status, 204)
  const make = async (path: string, body: object = {}) => {
    const { auth } = await told(`auth/token/${path}`, { policies: ['night'], ttl: '1h', ...body })
    return String(auth['client_token'])
  }
  const [plain, counted, near] = [
    await make('create'),
    await make('create', { num_uses: 5, ttl: '2h' }),
    await make('create/bound'),
  ]
  const statusOf = async (token: string, remote = '127.0.0.1') =>
    (await world.ask('POST', target, {}, { token, remote })).status
  const operated = async (dr_operation_token: string, remote: string, what = 'merkle-check') =>
    (await world.ask('POST', `${DR}/secondary/${what}`, { dr_operation_token }, { token: null, remote })).status
  const [batch, late] = [
    await make('create/bound', { type: 'batch' }),
    await make('create/bound', { type: 'batch', ttl: '2h' }),
  ]
  await told(`${DR}/primary/enable`)
  await told(`${DR}/primary/demote`)

  assert.equal(await statusOf(plain), 200)
  assert.deepEqual([await statusOf(counted), await statusOf(counted)], [403, 403], 'no use of it could be written')
  assert.deepEqual([await statusOf(near, '10.1.2.3'), await statusOf(near, '10.2.0.1')], [200, 403])
  assert.deepEqual([await operated(batch, '10.1.2.3'), await operated(batch, '10.2.0.1')], [200, 403])
  assert.equal(await operated(plain, '127.0.0.1'), 403, 'a service token is no operation token')
  world.nowMs += 3_600_000
  assert.deepEqual([await statusOf(plain), await statusOf(near, '10.1.2.3')], [403, 403], 'their time is over')
  assert.equal(await operated(batch, '10.1.2.3'), 403)
  assert.equal(await operated(late, '10.1.2.3', 'promote'), 200)
  const lookup = await world.ask('POST', 'auth/token/lookup', { token: counted })
  assert.equal(lookup.body.data['num_uses'], 5, 'a use that was refused was not taken')
})
