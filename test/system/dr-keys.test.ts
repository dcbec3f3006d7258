/** The keys of a secondary follow those of its primary, and degraded synchronous replication is reported. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { LinkClient } from '../../src/dr/link/link.ts'
import type { ResponseOf } from '../../src/dr/link/messages.ts'
import { ReplicationState } from '../../src/dr/state/replication-state.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { DR, drPair, type DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'

const WAIT_MS = 20_000

test('a rekey of the primary seals its secondary until the new shares are entered, and degraded sync is reported', {
  timeout: 280_000,
}, async (t) => {
  const more = 'replication {\n sync = true\n sync_timeout = "1s"\n }'
  const { primary: a, secondary: b } = await drPair(t, { more })
  const health = async () =>
    (await (await fetch(`${a.agent.url}/v1/sys/health`)).json()) as Readonly<Record<string, unknown>>
  await eventually(async () => (await health())['sync'] === 'on', 'commits wait for the secondary')

  const started = await a.told('PUT', 'sys/rotate/root/init', { secret_shares: 3, secret_threshold: 2 })
  let done = started
  for (const key of a.keys.shares) {
    done = await a.told('PUT', 'sys/rotate/root/update', { key, nonce: started.data['nonce'] })
  }
  const shares = (done.data['keys_base64'] as string[]).slice(1)
  const isSealed = async () => (await b.told('GET', 'sys/seal-status', undefined, '')).body['sealed']
  await eventually(isSealed, 'the held root key opens nothing any more')
  assert.equal(await b.health(), 503)
  const why = 'this secondary is sealed: its primary has a new root key'
  await eventually(() => b.agent.stderr().includes(why), 'the log says why')
  await b.follows(a)
  await b.unseal({ shares, token: '' })
  assert.equal(await b.health(), 472)

  await b.kill()
  const thief = await thiefOf(b)
  await assert.rejects(thief.fence(), { reason: 'unproven' })
  thief.acknowledgeAll()
  await a.told('POST', 'cubbyhole/late', { a: '1' })
  assert.equal((await health())['sync'], 'degraded', 'what the thief acknowledges does not count')
  assert.equal((await a.status())['state'], 'running', 'and its notice does not fence')
  thief.link.close()
  assert.equal((await a.status())['sync'], 'degraded')
  await eventually(() => a.agent.stderr().includes('synchronous replication degraded'), 'the log says so')
  await b.restart()
  await b.follows(a)
  assert.equal((await health())['sync'], 'degraded', 'a sealed secondary proves nothing')
  await b.unseal({ shares, token: '' })
  await eventually(async () => (await health())['sync'] === 'on', 'it has caught up')
  assert.equal((await b.told('GET', `${DR}/status`, undefined, '')).data['mode'], 'secondary')
})

/** What the copy of the database of a sealed secondary is good for. */
async function thiefOf(server: DrServer) {
  const store = await SqliteStore.open(join(server.directory, 'data/server/secrets.db'))
  const { upstream } = new ReplicationState(store).now
  const [{ epoch }, position] = [store, store.position()]
  await store.close()
  assert.ok(upstream)
  const link = await LinkClient.connect(upstream, upstream.address, WAIT_MS)
  const about = { epoch, api: 'http://thief' }
  const fence = () => {
    const asked = { ...about, epoch: epoch + 1, fork: position, addresses: [], nonce: Buffer.alloc(16) }
    return link.call('Fence', { ...asked, proof: Buffer.alloc(32) }, WAIT_MS)
  }
  const acknowledgeAll = () => {
    const call = link.follow()
    call.on('error', () => undefined)
    call.on('data', (message: ResponseOf<'Follow'>) => {
      if (message.kind !== 'rows') return
      const [sequence = 0, rowEpoch = 0, , checksum = Buffer.alloc(32)] = message.rows.at(-1) ?? []
      call.write({ kind: 'ack', position: { sequence, epoch: rowEpoch, checksum }, isWhole: true })
    })
    call.write({ kind: 'from', ...about, position, windowBytes: 1 << 20, cluster: '' })
  }
  return { acknowledgeAll, fence, link }
}
