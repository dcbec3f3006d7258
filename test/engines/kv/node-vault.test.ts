/** A stock client in this language. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import nodeVault from 'node-vault'
import { listenTo } from '../../helpers/core-listener.ts'
import { openKv } from '../../helpers/kv-world.ts'

const isStatus = (status: number) => (error: { response?: { statusCode?: number } }) =>
  error.response?.statusCode === status

test('node-vault writes, reads, lists with the verb LIST, deletes, undeletes, destroys', async (t) => {
  const world = await openKv(t)
  const endpoint = `http://127.0.0.1:${await listenTo(t, world)}`
  const vault = nodeVault({ apiVersion: 'v1', endpoint, token: world.rootToken })
  await vault.write('secret/data/app/db', { data: { user: 'app', password: 'x' }, options: { cas: 0 } })
  await assert.rejects(vault.write('secret/data/app/db', { data: {}, options: { cas: 0 } }), isStatus(400))
  await vault.update('secret/data/app/db', { data: { password: 'y' } })
  const { data } = (await vault.read('secret/data/app/db')) as { data: { data: object; metadata: { version: number } } }
  assert.deepEqual([data.data, data.metadata.version], [{ user: 'app', password: 'y' }, 2])
  const first = (await vault.read('secret/data/app/db?version=1')) as { data: { data: object } }
  assert.deepEqual(first.data.data, { user: 'app', password: 'x' })
  const list = (await vault.list('secret/metadata/app')) as { data: { keys: string[] } }
  assert.deepEqual(list.data.keys, ['db'])
  await vault.delete('secret/data/app/db')
  await assert.rejects(vault.read('secret/data/app/db'), isStatus(404))
  await vault.write('secret/undelete/app/db', { versions: [2] })
  await vault.write('secret/destroy/app/db', { versions: [1] })
  const metadata = (await vault.read('secret/metadata/app/db')) as {
    data: { versions: Record<string, { destroyed: boolean }> }
  }
  assert.deepEqual([metadata.data.versions['1']?.destroyed, metadata.data.versions['2']?.destroyed], [true, false])
  await vault.delete('secret/metadata/app/db')
  await assert.rejects(vault.list('secret/metadata/app'), isStatus(404))
})

test('node-vault uses secrets without versions', async (t) => {
  const world = await openKv(t, '1')
  const endpoint = `http://127.0.0.1:${await listenTo(t, world)}`
  const vault = nodeVault({ apiVersion: 'v1', endpoint, token: world.rootToken })
  await vault.write('secret/app/db', { user: 'app', ttl: '1h' })
  const { data, lease_duration: lease } = (await vault.read('secret/app/db')) as {
    data: object
    lease_duration: number
  }
  assert.deepEqual([data, lease], [{ user: 'app', ttl: '1h' }, 3600])
  const list = (await vault.list('secret/app')) as { data: { keys: string[] } }
  assert.deepEqual(list.data.keys, ['db'])
  await vault.delete('secret/app/db')
  await assert.rejects(vault.read('secret/app/db'), isStatus(404))
})
