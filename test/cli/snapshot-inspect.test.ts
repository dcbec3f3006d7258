/** `outpost operator snapshot inspect`, of snapshots that a real server saved, whole and damaged. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { gunzipSync, gzipSync } from 'node:zlib'
import { programVersion } from '../../src/cli/commands/version.ts'
import { runHere } from '../helpers/command-here.ts'
import { freshServer } from '../helpers/secrets-server.ts'

function inspect(...args: string[]) {
  return runHere(['operator', 'snapshot', 'inspect', ...args], {})
}

test('metadata and checksum of a snapshot, without a server', async (t) => {
  const { agent, directory, keys, run, token } = await freshServer(t, '-key-shares=1 -key-threshold=1')
  assert.equal((await run('operator unseal -', keys[0])).code, 0)
  assert.equal((await run('secrets enable -version=2 -path=secret kv', '', token)).code, 0)
  assert.equal((await run('kv put secret/app password=a-planted-secret', '', token)).code, 0)
  const file = join(directory, 'one.snap')
  const startedMs = Date.now()
  assert.equal((await run(`operator snapshot save ${file}`, '', token)).code, 0)
  const { code, stderr, stdout } = await inspect('-json', file)
  assert.deepEqual([code, stderr], [0, ''])
  const shown = JSON.parse(stdout) as Record<string, unknown>
  const data = (await (await fetch(`${agent.url}/v1/sys/health`)).json()) as Record<string, unknown>
  assert.equal(shown['cluster_id'], data['cluster_id'])
  assert.deepEqual([shown['outpost_version'], shown['format'], shown['verified']], [programVersion(), 1, true])
  const takenMs = Date.parse(String(shown['taken_at']))
  assert.ok(takenMs >= startedMs - 1000 && takenMs <= Date.now() + 1000)
  assert.ok(Number(shown['entries']) > 10 && Number(shown['bytes']) > 1000)
  assert.match(String(shown['sha256']), /^[0-9a-f]{64}$/)
  const table = (await inspect(file)).stdout
  assert.match(table, new RegExp(`^Cluster ID +${String(data['cluster_id'])}$`, 'm'))
  assert.match(table, /^SHA-256 of Entries +[0-9a-f]{64} \(verified\)$/m)
  // A pipe, as from an object store.
  const piped = await run('operator snapshot inspect -json -', readFileSync(file, 'latin1'))
  assert.equal(piped.code, 1, 'text is not a snapshot')

  await t.test('one byte of an entry, a cut, another file', async () => {
    const archive = gunzipSync(readFileSync(file))
    const refusedWith = async (bytes: Buffer, message: RegExp) => {
      const damaged = join(directory, 'damaged.snap')
      writeFileSync(damaged, bytes)
      const ran = await inspect(damaged)
      assert.deepEqual([ran.code, ran.stdout], [1, ''])
      assert.match(ran.stderr, message)
      assert.doesNotMatch(ran.stderr, /nothing was changed/)
    }
    const flipped = Buffer.from(archive)
    const at = archive.indexOf('state.bin') + 512 + 200
    flipped[at] = (flipped[at] ?? 0) ^ 1
    await refusedWith(
      gzipSync(flipped),
      /damaged\.snap: the snapshot is damaged: the checksum of its entries does not match\n$/,
    )
    await refusedWith(gzipSync(archive.subarray(0, archive.length - 3000)), /the snapshot is damaged: it is truncated/)
    await refusedWith(readFileSync(file).subarray(0, 5000), /it is truncated, or not a gzip archive/)
    await refusedWith(Buffer.from('not one'), /it is truncated, or not a gzip archive/)
    const missing = await inspect(join(directory, 'none.snap'))
    assert.equal(missing.code, 1)
    assert.match(missing.stderr, /^outpost: cannot read \S+none\.snap: ENOENT/)
    assert.equal((await inspect()).code, 2)
  })
})
