/** What a node that ignores its credit can make its caller queue. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UnfinishedChunks } from '../../../src/cluster/rpc/node-limits.ts'
import { BufferPool, PendingCall } from '../../../src/cluster/rpc/pending-call.ts'
import { CreditPool, FIRST_BYTES } from '../../../src/cluster/rpc/credit-window.ts'
import { dataHead, DATA_BYTES_MAX, encode } from '../../../src/cluster/rpc/call-wire.ts'

function startCall(chunks = new UnfinishedChunks(), nodeId = 'node') {
  const flow = { allowed: FIRST_BYTES }
  const call = new PendingCall({
    send: (message) => {
      if (message.kind === 'credit') flow.allowed = message.allowed
    },
    credit: new CreditPool(),
    buffers: new BufferPool(),
    chunks,
    nodeId,
  })
  let sequence = 0
  call.receive(encode({ kind: 'head', status: 200, headers: {}, frames: true }))
  const say = (data: Uint8Array, isLast = true) => call.receive(Buffer.concat([dataHead(sequence++, isLast), data]))
  return { call, flow, say }
}

/** Reads to the end; resolves with the bytes before it and what ended it. */
async function drained(call: PendingCall): Promise<{ bytes: number; error: unknown }> {
  let bytes = 0
  try {
    for (let answer = await call.next(); answer; answer = await call.next()) {
      if (answer instanceof Uint8Array) bytes += answer.length
    }
    return { bytes, error: undefined }
  } catch (error) {
    return { bytes, error }
  }
}

test('a node that exceeds its credit breaks its call, and at most the credit and one message are queued', async () => {
  const { call, say } = startCall()
  const message = Buffer.alloc(DATA_BYTES_MAX, 'a')
  for (let bytes = 0; bytes < 8 << 20; bytes += message.length) say(message)
  const { bytes, error } = await drained(call)
  assert.ok(bytes <= FIRST_BYTES + DATA_BYTES_MAX, `${bytes} bytes were kept`)
  assert.match(String(error), /more than its credit/)
})

test('a chunk without an end breaks its call before it is kept whole', async () => {
  const { call, flow, say } = startCall()
  const message = Buffer.alloc(DATA_BYTES_MAX, 'a')
  const ended = drained(call)
  let sent = 0
  const isOver = { now: false }
  void ended.then(() => (isOver.now = true))
  for (let round = 0; !isOver.now && round < 100_000; round++) {
    if (sent + message.length <= flow.allowed) {
      say(message, false)
      sent += message.length
    } else await new Promise((resolve) => setImmediate(resolve))
  }
  const { bytes, error } = await ended
  assert.match(String(error), /an unfinished chunk larger than/)
  assert.equal(bytes, 0)
  assert.ok(sent <= 9 << 20, `${sent} bytes were taken`)
})

test('a call that is closed gives its unfinished chunk back to the other calls of its node', async () => {
  const chunks = new UnfinishedChunks()
  const message = Buffer.alloc(DATA_BYTES_MAX, 'a')
  for (let calls = 0; calls < 50; calls++) {
    const { call, flow, say } = startCall(chunks)
    await call.next()
    const waiting = call.next()
    for (let sent = 0, turns = 0; sent < 1 << 20 && turns < 10_000; turns++) {
      if (sent + message.length <= flow.allowed) {
        say(message, false)
        sent += message.length
      } else await new Promise((resolve) => setImmediate(resolve))
    }
    call.close()
    call.fail(new Error('closed'))
    void waiting.catch(() => undefined)
  }
  assert.equal(chunks.reserve('node', 32 << 20, 0), (32 << 20) - (256 << 10))
})

test('messages of one byte are coalesced, in order', async () => {
  const { call, say } = startCall()
  const text = Array.from({ length: 50_000 }, (_, at) => String(at % 10)).join('')
  for (const letter of text) say(Buffer.from(letter))
  assert.ok(call.queued < 100, `${call.queued} messages are queued`)
  call.receive(encode({ kind: 'end', sequence: text.length }))
  await call.next()
  let received = ''
  for (let answer = await call.next(); answer; answer = await call.next()) {
    if (answer instanceof Uint8Array) received += Buffer.from(answer).toString()
  }
  assert.equal(received, text)
})

test('a node that sends empty messages, or splits each chunk into two, breaks its call', async () => {
  const empty = startCall()
  for (let at = 0; at < 10_000; at++) empty.say(Buffer.alloc(0))
  assert.ok(empty.call.queued <= 1)
  assert.match(String((await drained(empty.call)).error), /too many messages/)
  const halves = startCall()
  for (let at = 0; at < 30_000; at++) halves.say(Buffer.from('a'), at % 2 === 1)
  assert.ok(halves.call.queued < 5000)
  assert.match(String((await drained(halves.call)).error), /too many messages/)
})

/** Sends a chunk of frames without an end, within the credit; resolves with the error that ends it. */
async function endlessChunk({ call, flow, say }: ReturnType<typeof startCall>, mostBytes: number): Promise<unknown> {
  await call.next()
  const end: { error?: unknown } = {}
  void call.next().catch((error: unknown) => (end.error = error))
  for (let sent = 0; sent < mostBytes && end.error === undefined; ) {
    if (flow.allowed - sent >= DATA_BYTES_MAX) {
      say(Buffer.alloc(DATA_BYTES_MAX, 'a'), false)
      sent += DATA_BYTES_MAX
    } else await new Promise(setImmediate)
  }
  await new Promise(setImmediate)
  return end.error
}

test('unfinished chunks of a node are limited to 32 MiB for all its calls, and other nodes are not affected', async () => {
  const chunks = new UnfinishedChunks()
  const errors = []
  for (let at = 0; at < 16; at++) errors.push(await endlessChunk(startCall(chunks), 3 << 20))
  assert.match(errors.map(String).join(), /too many unfinished chunks/)
  assert.equal(await endlessChunk(startCall(chunks, 'another'), 3 << 20), undefined)
})
