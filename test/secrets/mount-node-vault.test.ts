/** A stock client, unchanged, that looks after mounts and keeps something in its cubbyhole. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import nodeVault from 'node-vault'
import { kv } from '../../src/engines/kv/kv.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'

test('node-vault enables, moves and disables mounts', async (t) => {
  const world = await CoreWorld.open(t, { engines: [kv] })
  const port = await listenTo(t, world)
  const vault = nodeVault({ endpoint: `http://127.0.0.1:${port}`, token: world.rootToken })
  await vault.mount({ mount_point: 'team', type: 'kv', options: { version: '2' }, description: 'of the team' })
  const mounts = await vault.mounts()
  assert.equal(mounts.data['team/'].description, 'of the team')
  assert.equal(mounts['team/'].type, 'kv', 'older clients look beside the envelope')
  await vault.write('team/data/a', { data: { x: 1 } })
  const { data } = await vault.remount({ from: 'team', to: 'moved' })
  assert.equal((await vault.read(`sys/remount/status/${data.migration_id}`)).data.migration_info.status, 'success')
  assert.deepEqual((await vault.read('moved/data/a')).data.data, { x: 1 })
  await assert.rejects(vault.mount({ mount_point: 'moved', type: 'kv-v2' }), /path is already in use at moved\//)
  await assert.rejects(vault.mount({ mount_point: 'aws', type: 'aws' }), /plugin not found in the catalog: aws/)
  await assert.rejects(vault.enableAuth({ mount_point: 'ldap', type: 'ldap' }), /plugin not found in the catalog: ldap/)
  assert.equal((await vault.auths()).data['token/'].type, 'token')
  await vault.unmount({ mount_point: 'moved' })
  await assert.rejects(vault.read('moved/data/a'), /no handler for route/)
  assert.equal((await vault.health({ activecode: 200 })).cluster_name, 'test')

  await vault.write('cubbyhole/a/b', { secret: 'kept' })
  assert.deepEqual((await vault.list('cubbyhole')).data.keys, ['a/'])
  assert.deepEqual((await vault.read('cubbyhole/a/b')).data, { secret: 'kept' })
  const other = nodeVault({ endpoint: `http://127.0.0.1:${port}` })
  other.token = (await vault.tokenCreate({ policies: ['default'] })).auth.client_token
  await assert.rejects(other.read('cubbyhole/a/b'), /Status 404/)
  await vault.delete('cubbyhole/a/b')
  await assert.rejects(vault.list('cubbyhole'), /Status 404/)
})
