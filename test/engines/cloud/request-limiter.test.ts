/** The limit of concurrent AWS requests, and back-off after throttling. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AwsClient } from '../../../src/engines/cloud/aws/aws.ts'
import { AwsFailure } from '../../../src/engines/cloud/aws/aws-failure.ts'
import { CONCURRENT_REQUESTS_MAX, RequestLimiter } from '../../../src/engines/cloud/aws/request-limiter.ts'
import { eventually } from '../../helpers/eventually.ts'

const never = new AbortController().signal
const isRefused = (error: unknown) => error === 'refused'

/** A pace whose clock stands, and requests that are answered by hand. */
function played() {
  const own = { nowMs: 1000 }
  const pace = new RequestLimiter(() => own.nowMs)
  const under: PromiseWithResolvers<void>[] = []
  const send = (signal = never) =>
    pace.run(
      () => {
        const answer = Promise.withResolvers<void>()
        under.push(answer)
        return answer.promise
      },
      isRefused,
      signal,
    )
  return { own, pace, under, send }
}

test('limits requests to one for a second after throttling, then to half as many, then increases the limit', async () => {
  const { own, pace, send, under } = played()
  const outcomes = Promise.allSettled(Array.from({ length: CONCURRENT_REQUESTS_MAX + 30 }, () => send()))
  await eventually(() => under.length === CONCURRENT_REQUESTS_MAX, 'as many as there are sockets')
  const [first, second, ...others] = under.splice(0)
  first?.reject('refused')
  await eventually(() => pace.limit === CONCURRENT_REQUESTS_MAX / 2, 'half as many')
  // Of a request that had begun before.
  second?.reject('refused')
  for (const each of others) each.resolve()
  for (let count = 0; count < 3; count++) {
    await eventually(() => under.length === 1, 'one at a time')
    under.pop()?.resolve()
  }
  await eventually(() => under.length === 1, 'one at a time')
  assert.ok(pace.limit >= CONCURRENT_REQUESTS_MAX / 2 && pace.limit < CONCURRENT_REQUESTS_MAX / 2 + 3, `${pace.limit}`)
  const { limit } = pace
  own.nowMs += 1000
  under.pop()?.resolve()
  await eventually(() => under.length === Math.min(limit, 26), 'no more than the half')
  for (let left = 26; left > 0; left--) {
    await eventually(() => under.length > 0, 'the rest')
    under.pop()?.resolve()
  }
  const refused = (await outcomes).filter(({ status }) => status === 'rejected')
  assert.equal(refused.length, 2)
})

test('never delays a single request, and a disconnected caller affects no other', async () => {
  const { own, pace, send, under } = played()
  for (let count = 0; count < 8; count++) {
    const one = send()
    await eventually(() => under.length === 1, 'it begins')
    under.pop()?.reject('refused')
    await assert.rejects(one, (error) => error === 'refused')
    own.nowMs += count % 2 === 0 ? 1000 : 0
  }
  assert.equal(pace.limit, 1)
  own.nowMs += 1000
  const leaver = new AbortController()
  const all = [send(), send(), send(), send(leaver.signal), send()]
  await eventually(() => under.length === 1, 'as many as may')
  leaver.abort()
  await eventually(() => under.length === 2, 'the disconnected caller does not wait')
  for (let count = 0; count < 5; count++) {
    await eventually(() => under.length > 0, 'the next one')
    under.shift()?.resolve()
  }
  await Promise.all(all)
})

test('retries a temporary refusal also after a long wait in the limiter', async () => {
  const target = { endpoint: 'http://127.0.0.1:1', region: 'us-east-1' }
  const client = new AwsClient('IAM', Promise.resolve({ destroy: () => undefined }), { target, attempts: 1 })
  const open = Promise.withResolvers<void>()
  const others = Array.from({ length: CONCURRENT_REQUESTS_MAX }, () =>
    client.call(() => open.promise, { signal: never }),
  )
  let asked = 0
  const passingMs = 100
  const unseen = client.call(
    () =>
      ++asked === 1 ? Promise.reject(new AwsFailure('NoSuchEntity', 'no such user', 404, false)) : Promise.resolve(),
    { signal: never, passes: ({ code }) => code === 'NoSuchEntity', passingMs },
  )
  const beganAtMs = performance.now()
  await eventually(() => performance.now() - beganAtMs > 2 * passingMs, 'it has waited')
  assert.equal(asked, 0)
  open.resolve()
  await Promise.all([unseen, ...others])
  assert.equal(asked, 2)
})
