/** Watch streams: reported changes, permissions, ends, and the cost of slow readers and of a thousand readers. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import type { OperationMeter } from '../../../src/http/services.ts'
import type { KvOptions } from '../../../src/engines/kv/kv.ts'
import { listening, listenTo } from '../../helpers/core-listener.ts'
import type { CoreWorld } from '../../helpers/core-world.ts'
import { expectStatus as expect, openKv, tokenWith, writeSecret as write } from '../../helpers/kv-world.ts'
import { openStream, type StreamOptions, type WatchStream } from '../../helpers/watch-stream-client.ts'
import { eventually } from '../../helpers/eventually.ts'

interface Opened {
  readonly world: CoreWorld
  readonly port: number
  readonly stream: (path?: string, options?: Partial<StreamOptions>) => Promise<WatchStream>
}

async function opened(t: TestContext, kv: KvOptions = {}): Promise<Opened> {
  const world = await openKv(t, '2', kv)
  const port = await listenTo(t, world)
  const stream: Opened['stream'] = async (path = 'secret/watch?stream=true', options = {}) => {
    const made = await openStream(port, path, { token: world.rootToken, ...options })
    t.after(() => made.close())
    return made
  }
  return { world, port, stream }
}

/** The long form has 1,000 of each. */
const WRITES = Number(process.env['OUTPOST_WATCH_WRITES'] ?? 60)
const STREAMS = Number(process.env['OUTPOST_WATCH_STREAMS'] ?? 60)

const lastOf = (stream: WatchStream) => stream.lines().at(-1)

test('each change is a line with a cursor that resumes after it', async (t) => {
  const { stream, world } = await opened(t)
  await write(world, 'before', {})
  const first = await stream()
  assert.deepEqual([first.status, first.response.headers['content-type']], [200, 'application/x-ndjson'])
  assert.equal(first.response.headers['cache-control'], 'no-store')
  await eventually(() => first.lines().length === 1)
  assert.deepEqual(Object.keys(first.lines()[0] ?? {}), ['cursor'])
  await write(world, 'f/a', { x: 1 })
  const operations = ['f/b', 'g', 'f/c'].map((path) => ({ op: 'put', path, data: {} }))
  await expect(world, 200, 'POST', 'secret/transaction', { operations })
  await expect(world, 204, 'DELETE', 'secret/data/f/a')
  const all = ['write f/a 1', 'write f/b 1', 'write g 1', 'write f/c 1', 'delete f/a 1']
  await eventually(() => first.told().length === 5)
  assert.deepEqual(first.told(), all)
  for (const [at, { cursor }] of first.lines().entries()) {
    const next = await stream(`secret/watch?stream=true&cursor=${cursor}`)
    await eventually(() => next.told().length === 5 - at)
    assert.deepEqual(next.told(), all.slice(at))
    next.close()
    const below = await stream(`secret/watch/f?stream=true&cursor=${cursor}`)
    await eventually(() => below.lines().length > 1 || at === 5)
    const meant = all.slice(at).filter((each) => each.includes(' f/'))
    await eventually(() => below.told().length === meant.length)
    assert.deepEqual(below.told(), meant)
    below.close()
  }
  const lost = await stream('secret/watch?stream=true&cursor=7-99')
  await write(world, 'later', {})
  await eventually(() => lost.told().length === 1)
  assert.deepEqual([lost.lines()[1]?.reset, lost.told()], [true, ['write later 1']])
})

test('server-sent events resume after the last event ID', async (t) => {
  const { port, stream, world } = await opened(t)
  const headers = { Accept: 'text/event-stream' }
  const first = await stream('secret/watch', { headers })
  assert.equal(first.response.headers['content-type'], 'text/event-stream')
  await eventually(() => first.text().startsWith('retry: 1000\n\nid: '))
  await write(world, 'a', {})
  await eventually(() => first.text().includes('data: '))
  const [, id = '', data = ''] = /id: (\S+)\ndata: (.*)\n\n$/.exec(first.text()) ?? []
  assert.deepEqual((JSON.parse(data) as { path: string; cursor: string }).cursor, id)
  await write(world, 'b', {})
  const next = await stream('secret/watch?cursor=1-1', { headers: { ...headers, 'Last-Event-ID': id } })
  await eventually(() => next.text().includes('"b"'))
  assert.ok(!next.text().includes('"a"'))
  const lost = await stream('secret/watch', { headers: { ...headers, 'Last-Event-ID': '7-99' } })
  await eventually(() => lost.text().includes('event: reset\ndata: {"reset":true,'))

  await world.core.seal()
  await eventually(() => first.text().endsWith('event: end\ndata: {"status":503,"errors":["Vault is sealed"]}\n\n'))
  assert.equal(await first.ended, 'end')
  const refused = await openStream(port, 'secret/watch', { token: world.rootToken, headers })
  assert.equal(refused.status, 503)
})

test('an invalid stream request gets an error status', async (t) => {
  const { stream, world } = await opened(t)
  const token = await tokenWith(world, 'path "secret/watch/mine" { capabilities = ["read"] }')
  assert.equal((await stream('secret/watch?stream=true', { token })).status, 403)
  assert.equal((await stream('secret/watch/mine?stream=true', { token })).status, 200)
  assert.equal((await stream('secret/watch?stream=true&cursor=x')).status, 400)
  assert.equal((await stream('secret/watch?stream=maybe')).status, 400)
  assert.equal((await stream('none/watch?stream=true')).status, 404)
})

/** A policy that lets watch everything and read this folder. */
function rules(folder: string): string {
  return `path "secret/watch" { capabilities = ["read"] }
     path "secret/data/${folder}/*" { capabilities = ["read"] }`
}

test('a stream omits what the policies forbid, also after they change', async (t) => {
  const { stream, world } = await opened(t)
  await expect(world, 204, 'PUT', 'sys/policies/acl/app', { policy: rules('mine') })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['app'], no_default_policy: true })
  const token = String(made.body.auth['client_token'])
  const watching = await stream(undefined, { token })
  await eventually(() => watching.lines().length === 1)
  for (const name of ['theirs/a', 'mine/a']) await write(world, name, {})
  await eventually(() => watching.told().length === 1)
  await expect(world, 204, 'PUT', 'sys/policies/acl/app', { policy: rules('theirs') })
  for (const name of ['mine/b', 'theirs/b']) await write(world, name, {})
  await eventually(() => watching.told().length === 2)
  assert.deepEqual(watching.told(), ['write mine/a 1', 'write theirs/b 1'])
  await expect(world, 204, 'PUT', 'sys/policies/acl/app', {
    policy: 'path "secret/data/*" { capabilities = ["read"] }',
  })
  await write(world, 'theirs/c', {})
  assert.equal(await watching.ended, 'end')
  assert.deepEqual([watching.told().length, lastOf(watching)?.status], [2, 403])
})

test('a revoked or expired token ends its stream before the next change and without one', async (t) => {
  const { stream, world } = await opened(t, { heartbeatMs: 200 })
  const policy = 'path "secret/*" { capabilities = ["read"] }'
  const [revoked = '', idle = '', expiring = ''] = await Promise.all([1, 2, 3].map(() => tokenWith(world, policy)))
  await expect(world, 204, 'PUT', 'sys/policies/acl/app', { policy })
  const batch = await world.ask('POST', 'auth/token/create', { type: 'batch', policies: ['app'], ttl: '60s' })
  const tokens = [revoked, expiring, String(batch.body.auth['client_token'])]
  const streams = await Promise.all(tokens.map((token) => stream(undefined, { token })))
  await write(world, 'a', {})
  await eventually(() => streams.every((each) => each.told().length === 1))
  const silent = await stream(undefined, { token: idle })
  await expect(world, 204, 'POST', 'auth/token/revoke', { token: revoked })
  await write(world, 'b', {})
  const [first, ...others] = streams
  assert.equal(await first?.ended, 'end')
  assert.deepEqual(first?.told(), ['write a 1'])
  assert.deepEqual(first?.lines().at(-1), { status: 403, errors: ['permission denied'] })
  await eventually(() => others.every((each) => each.told().length === 2))

  // Nothing that concerns it happens: the next heartbeat ends it.
  await expect(world, 204, 'POST', 'auth/token/revoke', { token: idle })
  assert.equal(await silent.ended, 'end')
  assert.equal(lastOf(silent)?.status, 403)
  await eventually(() => others.every((each) => Object.keys(lastOf(each) ?? {}).join() === 'cursor'))
  world.nowMs += 40 * 24 * 3_600_000
  await write(world, 'c', {})
  for (const each of others) {
    assert.equal(await each.ended, 'end')
    assert.deepEqual([each.told().length, lastOf(each)?.status], [2, 403])
  }
})

test('sealing ends streams without waiting for them', async (t) => {
  const { stream, world } = await opened(t)
  const streams = await Promise.all([stream(), stream('secret/watch/f?stream=true')])
  await write(world, 'f/a', {})
  await eventually(() => streams.every((each) => each.told().length === 1))
  await world.core.seal()
  for (const each of streams) {
    assert.equal(await each.ended, 'end')
    assert.deepEqual(lastOf(each), { status: 503, errors: ['Vault is sealed'] })
  }
  world.unseal()
  const next = await stream(`secret/watch?stream=true&cursor=${streams[0]?.lines().at(-2)?.cursor}`)
  await write(world, 'f/b', {})
  await eventually(() => next.told().length === 1)
  assert.deepEqual(next.told(), ['write f/b 1'])
})

test('disabling the mount ends its streams without waiting for them', async (t) => {
  const { stream, world } = await opened(t)
  const watching = await stream()
  await write(world, 'a', {})
  await eventually(() => watching.told().length === 1)
  const { body } = await world.ask('GET', 'sys/in-flight-req')
  assert.ok(!JSON.stringify(body).includes('secret/watch'))
  await expect(world, 204, 'DELETE', 'sys/mounts/secret')
  assert.equal(await watching.ended, 'end')
  assert.equal(lastOf(watching)?.status, 404)
})

test('a stopping server ends its streams, and a disconnected caller leaves no subscription', async (t) => {
  const world = await openKv(t)
  const { listener, port } = await listening(t, world)
  const [leaving, staying] = await Promise.all(
    [1, 2].map(() => openStream(port, 'secret/watch?stream=true', { token: world.rootToken })),
  )
  await write(world, 'a', {})
  await eventually(() => leaving?.told().length === 1 && staying?.told().length === 1)
  assert.equal(listener.activeExchanges, 2)
  leaving?.close()
  await eventually(() => listener.activeExchanges === 1)
  await listener.close()
  assert.equal(await staying?.ended, 'broken')
  await eventually(() => listener.activeExchanges === 0)
})

test('a slow reader delays no other reader, uses bounded memory and misses no event in the log', async (t) => {
  const world = await openKv(t)
  const meter: OperationMeter = { underway: 0, bytes: 0, answered: () => undefined }
  const { port } = await listening(t, world, { meter: { operation: () => meter } })
  const slow = await openStream(port, 'secret/watch?stream=true', { token: world.rootToken })
  const quick = await openStream(port, 'secret/watch/last?stream=true', { token: world.rootToken })
  t.after(() => [slow, quick].forEach((each) => each.close()))
  await eventually(() => slow.lines().length === 1)
  slow.response.pause()
  // Each in a folder of its own: a folder with hundreds of names as long is read whole for each of them.
  const names = Array.from({ length: 200 }, (_, at) => `${at}/${'n'.repeat(3900)}`)
  const operations = names.map((path) => ({ op: 'put', path, data: {} }))
  for (let round = 0; round < 20; round++) await expect(world, 200, 'POST', 'secret/transaction', { operations })
  await write(world, 'last', {})
  await eventually(() => quick.told().length === 1)
  const [total, handed] = [20 * 200 * 4000, meter.bytes]
  // What the kernel holds for it, and two pieces.
  assert.ok(handed < total / 2, `${handed} of ${total} bytes were handed over to who reads nothing`)
  slow.response.resume()
  await eventually(() => slow.tail().includes('"path":"last"'))
  const expected = Array.from({ length: 20 }, (_, at) => names.map((name) => `write ${name} ${at + 1}`)).flat()
  assert.deepEqual(slow.told(), [...expected, 'write last 1'])
})

test('five watchers that reconnect at random receive every change once and in order', async (t) => {
  const { stream, world } = await opened(t)
  const start = (await world.ask('GET', 'secret/watch')).body.data['cursor']
  let isOver = false
  const watcher = async (seed: number): Promise<string[]> => {
    const told: string[] = []
    let cursor = String(start)
    for (let turn = seed; !told.at(-1)?.startsWith('write last'); turn = (turn * 48271) % 2147483647) {
      const once = await stream(`secret/watch?stream=true&cursor=${cursor}`)
      if (isOver) await eventually(() => once.told().some((each) => each.startsWith('write last')))
      else await delay(turn % 40)
      once.close()
      const lines = once.lines()
      // As if the rest was lost on its way: it may end within a commit.
      const kept = isOver ? lines : lines.slice(0, 1 + (turn % (lines.length + 1)))
      for (const { change, path, ...line } of kept) {
        if (change) told.push(`${change} ${path} ${line.version}`)
        cursor = line.cursor
      }
    }
    return told
  }
  const watching = [3, 5, 7, 11, 13].map(watcher)
  const expected: string[] = []
  for (let at = 0; at < WRITES; at++) {
    await write(world, `k${at % 50}`, { at })
    expected.push(`write k${at % 50} ${Math.floor(at / 50) + 1}`)
    if (at % 10 !== 0) continue
    const several = Array.from({ length: 10 }, (_, each) => `t${each}`)
    const operations = several.map((path) => ({ op: 'put', path, data: { at } }))
    await expect(world, 200, 'POST', 'secret/transaction', { operations })
    expected.push(...several.map((path) => `write ${path} ${at / 10 + 1}`))
  }
  isOver = true
  await write(world, 'last', {})
  for (const each of watching) assert.deepEqual(await each, [...expected, 'write last 1'])
})

test('hundreds of streams each receive their own changes', async (t) => {
  const { port, world } = await opened(t)
  const before = process.memoryUsage().rss
  const { rootToken: token } = world
  const streams = await Promise.all(
    Array.from({ length: STREAMS }, (_, at) => openStream(port, `secret/watch/f${at % 10}?stream=true`, { token })),
  )
  t.after(() => streams.forEach((each) => each.close()))
  // One of them may have had its next heartbeat before the last one has its first line.
  await eventually(() => streams.every((each) => each.lines().length >= 1))
  const mib = (process.memoryUsage().rss - before) / (1 << 20)
  const beganMs = performance.now()
  await Promise.all(Array.from({ length: 100 }, (_, at) => write(world, `other/${at}`, {})))
  const elsewhereMs = performance.now() - beganMs
  assert.ok(streams.every((each) => each.told().length === 0))
  const wroteMs = performance.now()
  for (let at = 0; at < 10; at++) await write(world, `f${at}/x`, {})
  await eventually(() => streams.every((each) => each.told().length === 1))
  const toldMs = performance.now() - wroteMs
  for (const [at, each] of streams.entries()) assert.deepEqual(each.told(), [`write f${at % 10}/x 1`])
  t.diagnostic(`${STREAMS} streams: ${mib.toFixed(0)} MiB with their callers in the same process`)
  t.diagnostic(`100 writes elsewhere ${elsewhereMs.toFixed(0)} ms, all told within ${toldMs.toFixed(0)} ms`)
})
