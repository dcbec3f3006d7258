/** Tokens of a primary on its secondary: what bounds them there, and what of them is written. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { StoreError } from '../../../src/storage/sqlite/store-error.ts'
import { CoreWorld, type WorldOptions } from '../../helpers/core-world.ts'
import { quickUserpass } from '../../helpers/quick-userpass.ts'
import { ScriptedReplication } from '../../helpers/scripted-replication.ts'
import { steppedStore } from '../../helpers/stepped-store.ts'

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

/**
 * An auth method `corp` whose group and alias authorize tokens. `statuses` are the answers to these tokens on a secondary; afterwards
 * the server is the primary again.
 */
async function authorizedByCorp(t: TestContext, options: WorldOptions = {}) {
  const replication = new ScriptedReplication()
  const world = await CoreWorld.open(t, { engines: [quickUserpass], ...options, replication })
  replication.world = world
  const done = async (method: string, path: string, body: object) => {
    const answer = await world.ask(method, path, body)
    assert.ok(answer.status < 300, `${path}: ${answer.text}`)
    return answer.body
  }
  const accessorOf = async (mount: string) =>
    (((await world.ask('GET', 'sys/auth')).body.data[mount] ?? {}) as { accessor: string }).accessor
  const target = `${DR}/secondary/generate-public-key`
  await done('POST', 'sys/auth/corp', { type: 'userpass' })
  const corp = await accessorOf('corp/')
  await done('PUT', 'sys/policies/acl/by-group', { policy: `path "${target}" { capabilities = ["update", "sudo"] }` })
  const name = `{{identity.entity.aliases.${corp}.name}}`
  const templated = `path "${DR}/secondary/${name}" { capabilities = ["update", "sudo"] }`
  await done('PUT', 'sys/policies/acl/by-alias', { policy: templated })
  await done('POST', 'auth/corp/users/generate-public-key', { password: 'right', groups: 'ops' })
  const { data: group } = await done('POST', 'identity/group', { name: 'g', type: 'external', policies: 'by-group' })
  await done('POST', 'identity/group-alias', { name: 'ops', mount_accessor: corp, canonical_id: group['id'] })
  const login = await world.ask('POST', 'auth/corp/login/generate-public-key', { password: 'right' }, { token: null })
  // Its entity also has an alias that the disabled method does not own, and tokens by that.
  const alias = { name: 'own', mount_accessor: await accessorOf('token/'), canonical_id: login.body.auth['entity_id'] }
  await done('POST', 'identity/entity-alias', alias)
  const role = { allowed_entity_aliases: '*', allowed_policies: 'default,by-alias' }
  await done('POST', 'auth/token/roles/r', role)
  const tokenOf = async (policies: string[]) =>
    String((await done('POST', 'auth/token/create/r', { entity_alias: 'own', policies })).auth['client_token'])
  const tokens = [await tokenOf(['default']), await tokenOf(['by-alias'])]
  await done('POST', `${DR}/primary/enable`, {})
  const statuses = async () => {
    const found: number[] = []
    await done('POST', `${DR}/primary/demote`, {})
    for (const token of [...tokens, String(login.body.auth['client_token'])]) {
      // oxlint-disable-next-line no-await-in-loop
      found.push((await world.ask('POST', target, {}, { token })).status)
    }
    await replication.dr.promote({ primaryClusterAddr: '', force: false })
    return found
  }
  return { done, statuses, world }
}

test('groups and aliases of a disabled auth method give no rights on a secondary', async (t) => {
  const { done, statuses } = await authorizedByCorp(t)
  assert.deepEqual(await statuses(), [200, 200, 200])
  await done('DELETE', 'sys/auth/corp', {})
  assert.deepEqual(await statuses(), [403, 403, 403])
})

test('an auth method whose removal was interrupted gives no rights on a secondary', async (t) => {
  let isBusy = false
  const wrap: WorldOptions['wrap'] = (real) => {
    const commit: typeof real.commit = (batch) => {
      if (isBusy && batch.deletes.some((path) => path.startsWith('core/mounts/'))) throw new StoreError('busy', 'busy')
      return real.commit(batch)
    }
    return { ...steppedStore(real, () => undefined), commit }
  }
  const { statuses, world } = await authorizedByCorp(t, { wrap })
  isBusy = true
  // From here on the record is marked, and the mount is not served; its removal is retried.
  await world.ask('DELETE', 'sys/auth/corp').catch(() => undefined)
  assert.ok(world.lines.some(({ message }) => message === 'removing a disabled mount failed, will retry'))
  assert.deepEqual(await statuses(), [403, 403, 403])
})
