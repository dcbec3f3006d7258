/**
 * A caller that has used up its requests tries to get more by writing the path differently, and floods the core from one
 * address and from very many. Without a quota's bound, one caller could keep the thread that serves everybody busy.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { handleRequest } from '../../src/secrets/request/handle-request.ts'
import { BUCKETS_MAX } from '../../src/secrets/quotas/quota-buckets.ts'
import { ANONYMOUS } from '../../src/platform/operation.ts'
import { listenTo } from '../helpers/core-listener.ts'
import type { CoreWorld } from '../helpers/core-world.ts'
import { openKv } from '../helpers/kv-world.ts'
import { answersIn, raw } from '../helpers/raw-http.ts'

const OPERATOR = { remote: '10.99.0.1' }

async function limited(world: CoreWorld, path: string, rate: number): Promise<void> {
  const rule = { path, rate, interval: '1h' }
  assert.equal((await world.ask('POST', 'sys/quotas/rate-limit/q', rule, OPERATOR)).status, 204)
}

test('a different spelling of a path does not bypass its quota', async (t) => {
  const world = await openKv(t)
  assert.equal((await world.ask('POST', 'secret/data/app', { data: { a: 1 } })).status, 200)
  await limited(world, 'secret/data/app', 1)
  const port = await listenTo(t, world)
  const status = async (line: string, headers = '') => {
    const head = `${line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${headers}`
    const { bytes } = await raw({ port }, `${head}X-Vault-Token: ${world.rootToken}\r\n\r\n`)
    return answersIn(bytes)[0]?.status
  }
  assert.equal(await status('GET /v1/secret/data/app'), 200)
  for (const line of [
    'GET /v1/secret/data/app',
    'GET /secret/data/app',
    'GET /v1//secret//data///app',
    'GET /v1/secret/data/app/',
    'GET /v1/secret/data/APP',
    'GET /v1/secret/data/%61pp',
    'GET /v1/secret%2Fdata%2Fapp',
    'GET /v1/secret/data/app?version=1',
    'GET /v1/secret/data/app?list=true',
    'LIST /v1/secret/data/app',
    'DELETE /v1/secret/data/app',
    'HEAD /v1/secret/data/app',
  ]) {
    assert.equal(await status(line), 429, line)
  }
  for (const headers of ['X-Vault-Namespace: root\r\n', 'X-Vault-Namespace: /\r\n', 'X-Forwarded-For: 1.2.3.4\r\n']) {
    assert.equal(await status('GET /v1/secret/data/app', headers), 429, headers)
  }
  assert.equal(await status('GET /v1/secret/data/app', 'X-Vault-Namespace: other\r\n'), 404, 'nothing is served there')
})

test('a flood from one address does not affect others, and its tokens are not looked up', async (t) => {
  const world = await openKv(t)
  await limited(world, '', 100)
  let looked = 0
  const { core } = world
  const admit = core.admit.bind(core)
  core.admit = (token, remote) => {
    looked++
    return admit(token, remote)
  }
  let refused = 0
  for (let at = 0; at < 5000; at++) {
    const { status } = await world.ask('GET', 'secret/data/app', undefined, { token: `s.${at}`, remote: '10.6.6.6' })
    if (status === 429) refused++
  }
  assert.deepEqual({ refused, looked }, { refused: 4900, looked: 100 })
  for (let at = 0; at < 100; at++) {
    const other = await world.ask('GET', 'sys/mounts', undefined, { remote: '10.0.0.2' })
    assert.equal(other.status, 200)
  }
})

test('very many addresses do not increase the memory', async (t) => {
  const world = await openKv(t)
  await limited(world, '', 1)
  const { core } = world
  const params = { path: 'sys/mounts' }
  const one = { params, query: [], headers: {}, body: undefined }
  const signal = new AbortController().signal
  const ask = (remote: string) =>
    handleRequest(core, 'read', one, {
      requestId: 'x',
      identity: ANONYMOUS,
      signal,
      raw: one,
      token: undefined,
      hops: 0,
      remote,
    })
  const place = core.find('sys/mounts')
  for (let at = 0; at < BUCKETS_MAX + 20_000; at++) {
    const remote =
      at % 2
        ? `2001:db8:${(at >> 16).toString(16)}:${(at & 0xffff).toString(16)}::1`
        : `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`
    // Most only in the place where a request is counted: all of each request would take ten times as long.
    if (at % 25 < 2) await ask(remote)
    else core.open.quotas.take('sys/mounts', place, remote)
  }
  assert.equal(core.open.quotas.bucketCount, BUCKETS_MAX)
  const { status } = await world.ask('GET', 'sys/mounts', undefined, { remote: '192.0.2.1' })
  assert.equal(status, 200, 'a newcomer is served')
})
