/**
 * A caller without a token sends a snapshot to an uninitialized server, a byte at a time, and the operator finds the only place taken;
 * and the operator's own snapshot, which comes over a slow line, is cut by the limit that was made for such callers. A holder of a token
 * holds back the end of a restore until that token has been revoked, or the server sealed, or takes a snapshot that slowly.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { connect, type Socket } from 'node:net'
import { Writable } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { Rejection } from '../../src/engines/framework/engine.ts'
import type { UploadPace } from '../../src/http/upload.ts'
import { Refusal } from '../../src/platform/errors.ts'
import { ANONYMOUS } from '../../src/platform/operation.ts'
import { snapshotOperations } from '../../src/secrets/snapshot-operations.ts'
import { restoreSnapshot, saveSnapshot } from '../../src/storage/snapshot/snapshot.ts'
import { listening } from '../helpers/core-listener.ts'
import { CoreWorld, type WorldOptions } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { answersIn, listen } from '../helpers/raw-http.ts'

/** Quick to judge, and never reached by those who send nothing, however slow this machine is. */
const STRICT: UploadPace = { windowMs: 300, bytesMin: 4096 }
/** Met by a line that is slow and steady. */
const LAX: UploadPace = { windowMs: 20_000, bytesMin: 1 }

/** Far shorter than the upload over the slow line takes. */
const SHORT = { headTimeoutMs: 1000, requestTimeoutMs: 1000 }

async function serverWith(t: TestContext, uploadPace: UploadPace, options: WorldOptions = {}, times = {}) {
  const world = await CoreWorld.open(t, options)
  const { store } = world
  const operations = snapshotOperations(world.core, {
    save: (out, signal) => saveSnapshot(store, out, { signal }),
    restore: (input, wanted) => restoreSnapshot(store, input, wanted),
    onSaved: () => undefined,
  })
  const { listener, port } = await listening(t, world, { operations, limits: { uploadPace, ...times } })
  return { world, port, listener, operations }
}

async function snapshotOf(world: CoreWorld): Promise<Buffer> {
  const parts: Buffer[] = []
  const take = (chunk: Buffer, _encoding: unknown, done: () => void) => {
    parts.push(chunk)
    done()
  }
  await saveSnapshot(world.store, new Writable({ write: take }))
  return Buffer.concat(parts)
}

interface Sent {
  readonly path?: string
  readonly bytes: number
  readonly token?: string
  readonly from?: string
}

/** The head of an upload; the rest is the caller's. */
function begin(port: number, { path = 'snapshot-new', bytes, token, from = '127.0.0.1' }: Sent) {
  const socket = connect({ port, host: '127.0.0.1', localAddress: from })
  const lines = [`POST /v1/sys/storage/${path} HTTP/1.1`, 'Host: localhost', 'Connection: close']
  if (token !== undefined) lines.push(`X-Vault-Token: ${token}`)
  socket.write(`${lines.join('\r\n')}\r\nContent-Length: ${bytes}\r\n\r\n`)
  const heard = listen(socket, {})
  const answer = heard.then(({ bytes: answered }) => {
    const [first] = answersIn(answered)
    return { status: first?.status, text: String(first?.body) }
  })
  return { socket, answer }
}

async function trickle(socket: Socket, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length && socket.writable; at++) {
    socket.write(bytes.subarray(at, at + 1))
    await pause(20)
  }
}

async function whole(port: number, bytes: Buffer, sent: Omit<Sent, 'bytes'> = {}) {
  const { answer, socket } = begin(port, { bytes: bytes.length, ...sent })
  socket.write(bytes)
  return await answer
}

test('a sender that is too slow with a snapshot gets an error, and its slot is released at once', async (t) => {
  const { world } = await serverWith(t, STRICT)
  const snapshot = await snapshotOf(world)
  const { port } = await serverWith(t, STRICT, { raw: true })
  for (let round = 0; round < 2; round++) {
    const slow = begin(port, { bytes: 1 << 20 })
    void trickle(slow.socket, snapshot)
    const { status, text } = await slow.answer
    assert.equal(status, 408)
    assert.match(text, /the upload is too slow: less than 4096 bytes came in 0.3 s/)
  }
  assert.equal((await whole(port, snapshot)).status, 204)
})

test('a restore with a token must also make progress, and changes nothing otherwise', async (t) => {
  const { port, world } = await serverWith(t, STRICT)
  const snapshot = await snapshotOf(world)
  const { core, rootToken } = world
  for (const path of ['snapshot', 'raft/snapshot', 'raft/snapshot-force']) {
    const slow = begin(port, { path, bytes: snapshot.length, token: rootToken })
    slow.socket.write(snapshot.subarray(0, 4000))
    assert.equal((await slow.answer).status, 408, path)
  }
  assert.ok(core.isActive)
  assert.equal((await world.ask('GET', 'auth/token/lookup-self')).status, 200)
})

test('a body that is not a snapshot is refused before all of it was sent', async (t) => {
  const { port } = await serverWith(t, LAX, { raw: true })
  for (const bytes of [Buffer.from('no archive at all'), gzipSync(Buffer.alloc(2048, 7))]) {
    const { answer, socket } = begin(port, { bytes: 1 << 20 })
    socket.write(bytes)
    assert.equal((await answer).status, 400)
  }
})

test('a slow sender blocks no caller at another address', async (t) => {
  const { world } = await serverWith(t, LAX)
  const snapshot = await snapshotOf(world)
  const { listener, port } = await serverWith(t, LAX, { raw: true })
  const slow = begin(port, { bytes: 1 << 20, from: '127.0.0.2' })
  slow.socket.write(snapshot.subarray(0, 100))
  const second = await whole(port, snapshot, { from: '127.0.0.2' })
  assert.equal(second.status, 409, 'each address has one')
  assert.equal(listener.activeExchanges, 1)
  assert.equal((await whole(port, snapshot)).status, 204)
  slow.socket.write(snapshot.subarray(100))
  slow.socket.end()
  assert.equal((await slow.answer).status, 400, 'the server is initialized by now')
})

async function* noArchive() {
  yield Buffer.from('no archive')
}

test('slow senders at many addresses block neither the host itself nor more than their own number', async (t) => {
  const { operations } = await serverWith(t, LAX, { raw: true })
  const restore = operations.find(({ http }) => http.includes('POST /v1/sys/storage/snapshot-new'))
  assert.ok(restore)
  const raw = { params: {}, query: [], headers: {}, body: undefined }
  const ended = Promise.withResolvers<undefined>()
  t.after(() => ended.resolve(undefined))
  async function* silent() {
    await ended.promise
    yield* noArchive()
  }
  const upload = async (remote: string, body: AsyncIterable<Uint8Array>) => {
    const { signal } = new AbortController()
    const call = { requestId: remote, identity: ANONYMOUS, signal, raw, token: undefined, hops: 0, remote, body }
    return restore.run(restore.input.parse(raw), call, undefined)
  }
  const slow = ['192.0.2.1', '192.0.2.2', '192.0.2.3', '192.0.2.4'].map((remote) => upload(remote, silent()))
  await assert.rejects(upload('192.0.2.5', noArchive()), { code: 'conflict' })
  for (const own of ['127.0.0.1', '::1']) await assert.rejects(upload(own, noArchive()), { code: 'invalid_request' })
  ended.resolve(undefined)
  await Promise.all(slow.map((each) => assert.rejects(each, { code: 'invalid_request' })))
  await assert.rejects(upload('192.0.2.5', noArchive()), { code: 'invalid_request' }, 'a place is free again')
})

test('a snapshot over a slow and steady connection is accepted, however long it takes', async (t) => {
  const { port, world } = await serverWith(t, LAX, {}, SHORT)
  const snapshot = await snapshotOf(world)
  const fresh = await serverWith(t, LAX, { raw: true }, SHORT)
  const pieces = 40
  const slowly = async (socket: Socket) => {
    const size = Math.ceil(snapshot.length / pieces)
    for (let at = 0; at < snapshot.length; at += size) {
      socket.write(snapshot.subarray(at, at + size))
      // Four seconds in all: the limits are looked at once a second.
      await pause(100)
    }
  }
  const restored = begin(port, { path: 'raft/snapshot', bytes: snapshot.length, token: world.rootToken })
  const begun = begin(fresh.port, { bytes: snapshot.length })
  await Promise.all([slowly(restored.socket), slowly(begun.socket)])
  assert.deepEqual(await begun.answer, { status: 204, text: '' })
  assert.deepEqual(await restored.answer, { status: 204, text: '' })
  // Everything else keeps its limit.
  const late = connect({ port, host: '127.0.0.1' })
  late.write('POST /v1/sys/unseal HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{')
  assert.match((await listen(late, {})).text, /^HTTP\/1\.1 408 /)
})

const NO_RIGHTS = 'path "nothing" { capabilities = ["deny"] }'

for (const end of ['revoked', 'without rights', 'sealed'] as const) {
  test(`a restore replaces nothing if access ends before its last byte: ${end}`, async (t) => {
    const { listener, port, world } = await serverWith(t, LAX)
    const snapshot = await snapshotOf(world)
    const write = async (path: string, body: object) => {
      const { status } = await world.ask('POST', path, body)
      assert.ok(status === 200 || status === 204, path)
    }
    await write('sys/policies/acl/restore', {
      policy: 'path "sys/storage/raft/snapshot" { capabilities = ["update", "sudo"] }',
    })
    const { body } = await world.ask('POST', 'auth/token/create', { policies: ['restore'] })
    const { client_token: token } = body.auth as { client_token: string }
    const upload = begin(port, { path: 'raft/snapshot', bytes: snapshot.length, token })
    upload.socket.write(snapshot.subarray(0, -100))
    await eventually(() => listener.activeExchanges === 1)
    await write('sys/policies/acl/later', { policy: NO_RIGHTS })
    if (end === 'revoked') await write('auth/token/revoke', { token })
    else if (end === 'without rights') await write('sys/policies/acl/restore', { policy: NO_RIGHTS })
    else await world.core.seal()
    upload.socket.write(snapshot.subarray(-100))
    assert.equal((await upload.answer).status, end === 'sealed' ? 503 : 403)
    if (end === 'sealed') return assert.ok(!world.core.isActive)
    assert.equal((await world.ask('GET', 'sys/policies/acl/later')).status, 200)
  })
}

/** More than what is made ahead of a reader, and than fits into one chunk. */
const LARGE_BYTES = 2 << 20

for (const end of ['revoked', 'without rights', 'sealed'] as const) {
  test(`a slow read of a snapshot breaks off when access ends: ${end}`, async (t) => {
    const { operations, world } = await serverWith(t, LAX)
    await world.store.commit({ puts: [{ path: 'test/large', value: randomBytes(LARGE_BYTES) }], deletes: [] })
    const write = async (path: string, body: object) =>
      assert.ok((await world.ask('POST', path, body)).status < 300, path)
    const policy = 'path "sys/storage/raft/snapshot" { capabilities = ["read"] }'
    await write('sys/policies/acl/save', { policy })
    const { body } = await world.ask('POST', 'auth/token/create', { policies: ['save'] })
    const token = String(body.auth['client_token'])
    const save = operations.find(({ http }) => http.includes('GET /v1/sys/storage/raft/snapshot'))
    assert.ok(save)
    const raw = { params: {}, query: [], headers: {}, body: undefined }
    const { signal } = new AbortController()
    const chunks = save.run(
      save.input.parse(raw),
      { requestId: 'slow', identity: ANONYMOUS, signal, raw, token, hops: 0, remote: '127.0.0.1' },
      undefined,
    )
    assert.ok(Symbol.asyncIterator in chunks)
    const reader = chunks[Symbol.asyncIterator]()
    await reader.next()
    assert.ok((await reader.next()).value instanceof Uint8Array)
    if (end === 'revoked') await write('auth/token/revoke', { token })
    else if (end === 'without rights') await write('sys/policies/acl/save', { policy: NO_RIGHTS })
    else await world.core.seal()
    await assert.rejects(reader.next(), (error: Error) => error instanceof Refusal || error instanceof Rejection)
  })
}
