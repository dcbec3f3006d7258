/** The minimum rate of an upload. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { UploadBody } from '../../src/http/upload.ts'

const PACE = { windowMs: 200, bytesMin: 1000 }
const PIECES = 100

/** Bytes of a client that pauses before each, for less than a window. */
async function* trickle(): AsyncGenerator<Uint8Array> {
  for (let piece = 0; piece < PIECES; piece++) {
    await sleep(PACE.windowMs / 5)
    yield Buffer.alloc(1)
  }
}

async function receiveAll(body: UploadBody): Promise<void> {
  for (let piece = await body.next(); !piece.done; ) piece = await body.next()
}

test('a client that sends a byte now and then is too slow, although it never pauses for a whole window', async () => {
  await assert.rejects(receiveAll(new UploadBody(trickle(), PACE)), { code: 'request_timeout' })
})
