/** A member that takes over: it applies the whole stream before it serves. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StreamFollower } from '../../src/ha/stream-follower.ts'
import { samePosition } from '../../src/ha/stream/commit-message.ts'
import { HistoryDiffers } from '../../src/ha/stream/stream-applier.ts'
import { MemberStore, MemoryStream } from '../helpers/member-stores.ts'
import { put } from '../helpers/replica-pair.ts'
import { recordingLogger } from '../helpers/recording-logger.ts'

const missing = () => Promise.reject(new Error('not part of this test'))

function followerOf({ store }: MemberStore, { identity, payloads }: MemoryStream): StreamFollower {
  const stream = {
    identity,
    name: identity,
    bounds: missing,
    read: missing,
    async *follow() {},
    async *readFrom(sequence: number) {
      // Fewer than all: NATS limits the messages of one answer.
      const page = payloads.slice(sequence - 1, sequence + 1)
      for (const [at, payload] of page.entries()) yield { sequence: sequence + at, payload, pending: 0 }
    },
  }
  return new StreamFollower({
    store,
    stream,
    connection: { requestMany: missing },
    bucket: { members: missing },
    region: 'global',
    serverId: () => '',
    wallMs: Date.now,
    logger: recordingLogger([]),
    warn: () => undefined,
  })
}

test('a member that takes over applies all messages of the stream, and does not continue one that lacks messages', async (t) => {
  const stream = new MemoryStream()
  const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await a.lead()
  for (const path of ['1', '2']) await a.store.commit({ puts: [put(path)], deletes: [] })
  await b.follow()
  for (const path of ['3', '4', '5']) await a.store.commit({ puts: [put(path)], deletes: [] })
  const follower = followerOf(b, stream)
  await follower.catchUp(5, (request) => request())
  assert.equal(b.store.member.streamMark?.position, 5)
  assert.ok(samePosition(b.store.position(), a.store.position()))
  await assert.rejects(
    follower.catchUp(6, (request) => request()),
    HistoryDiffers,
  )
})
