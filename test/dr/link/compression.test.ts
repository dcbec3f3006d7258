/** Encoding of messages: which ones are compressed, and their limits. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { zstdCompressSync } from 'node:zlib'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import { serverNameOf } from '../../../src/dr/link/certificates.ts'
import { pathOf } from '../../../src/dr/link/link.ts'
import {
  ChunkAssembler,
  type LinkMethod,
  METHODS,
  pack,
  packSmall,
  PROTOCOL,
  unpack,
  unpackSmall,
} from '../../../src/dr/link/messages.ts'
import { BATCH_BYTES_MAX } from '../../../src/storage/sqlite/batch.ts'
import { bundleFor, Site } from '../../helpers/replication-site.ts'

const same = (bytes: Buffer) => bytes

test('a listing is compressed on request', async (t) => {
  const primary = await Site.start(t, 'primary')
  await primary.putMany('logical/1ec42f4d-b043-4ddb-b7c0-4ecf650c4245/versions', 500)
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  const bundle = await bundleFor(primary, 'raw')
  const [authority, key, certificate] = [bundle.ca_cert, bundle.client_key, bundle.client_cert].map((pem) =>
    Buffer.from(pem),
  )
  const name = serverNameOf(bundle.set_id)
  const options = { 'grpc.ssl_target_name_override': name, 'grpc.default_authority': name }
  const client = new Client(bundle.cluster_addr, credentials.createSsl(authority, key, certificate), options)
  t.after(() => client.close())
  const ask = (method: LinkMethod, bytes: Buffer) =>
    new Promise<Buffer>((resolve, reject) => {
      client.makeUnaryRequest(pathOf(method), same, same, bytes, new Metadata(), {}, (error, answer) => {
        if (answer) resolve(answer)
        else reject(error ?? new Error('no answer'))
      })
    })
  const about = { protocol: PROTOCOL, version: '1.0.0', isTrial: false, nonce: bundle.nonce, api: '', cluster: '' }
  const position = { sequence: 0, epoch: 0, checksum: Buffer.alloc(32) }
  await ask('Join', pack({ ...about, position, epoch: 0, atMs: Date.now() }))

  const all = Array.from({ length: 65_536 }, (_, at) => at)
  const pages = all.slice(0, 256)
  const requests = [
    ['Leaves', { subpages: all, after: '' }],
    ['Subpages', { pages }],
  ] as const
  for (const [method, request] of requests) {
    const { response } = METHODS[method]
    const plain = await ask(method, pack(request))
    const compressed = await ask(method, pack({ ...request, mayCompress: true }))
    assert.ok(compressed.length < 0.6 * plain.length, `${method}: ${compressed.length} of ${plain.length} bytes`)
    assert.deepEqual(unpackSmall(response, compressed), unpack(response, plain))
    assert.deepEqual(unpackSmall(response, plain), unpack(response, plain))
  }
  await assert.rejects(() => ask('Leaves', packSmall({ subpages: all, after: '' })), /malformed \w+ request/)
})

test('a decompressed message is not longer than the limit', () => {
  const bomb = zstdCompressSync(Buffer.alloc(64 << 20))
  assert.ok(bomb.length < 10_000)
  assert.throws(() => unpackSmall(METHODS.Leaves.response, bomb), { code: 'ERR_BUFFER_TOO_LARGE' })
  assert.throws(() => unpackSmall(METHODS.Leaves.response, bomb.subarray(0, 100)))
})

test('the size limit of a chunked value does not count the values before it', () => {
  const chunks = new ChunkAssembler()
  const [chunk, rest] = [Buffer.alloc(BATCH_BYTES_MAX / 2), Buffer.from('rest')]
  for (let value = 0; value < 3; value++) {
    chunks.add(chunk)
    assert.equal(chunks.take(rest).length, chunk.length + rest.length)
  }
  chunks.add(chunk)
  chunks.add(chunk)
  assert.throws(() => chunks.add(rest), /exceeds the batch limit/)
})
