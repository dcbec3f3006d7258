/** The keys of a secondary follow those of its primary, and who asks is told when synchronous commits go on without it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DR, drPair } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'

test('a rekey of the primary seals its secondary, which the new shares unseal; degraded sync is told', {
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
  const why = 'this secondary is sealed: its primary has another root key'
  await eventually(() => b.agent.stderr().includes(why), 'the log says why')
  await b.follows(a)
  await b.unseal({ shares, token: '' })
  assert.equal(await b.health(), 472)

  await b.kill()
  await a.told('POST', 'cubbyhole/late', { a: '1' })
  assert.equal((await health())['sync'], 'degraded')
  assert.equal((await a.status())['sync'], 'degraded')
  await eventually(
    () => a.agent.stderr().includes('commits do not wait for secondaries until these have caught up'),
    'the log says so',
  )
  await b.restart()
  await b.follows(a)
  await eventually(async () => (await health())['sync'] === 'on', 'it has caught up')
  assert.equal((await b.told('GET', `${DR}/status`, undefined, '')).data['mode'], 'secondary')
})
