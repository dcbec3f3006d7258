/** The minimum rate of a node: not violated by an honest one with a large log and a slow caller. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HostReading } from '../../../src/cluster/api/job-logs.ts'
import { MinimumRate } from '../../../src/cluster/rpc/node-limits.ts'
import { TIMINGS } from '../../../src/cluster/nats/timings.ts'
import type { Chunk } from '../../../src/platform/operation.ts'

const MIB = 1 << 20

function paced() {
  const clock = { ms: 0 }
  const rate = new MinimumRate(() => clock.ms)
  /** Is waited for, and then gives so much. */
  const wait = (ms: number, bytes: number) => {
    rate.beginWait()
    clock.ms += ms
    rate.endWait()
    rate.received(bytes)
    return rate.isViolated()
  }
  return { clock, rate, wait }
}

test('time in which the caller reads nothing does not count', () => {
  const { clock, wait } = paced()
  for (let at = 0; at < 1000; at++) {
    assert.equal(wait(1, 10), false)
    clock.ms += 10 * TIMINGS.minimumRatePeriodMs
  }
})

test('a search that is silent for minutes and a connection of 16 kbit/s are fast enough', () => {
  const { wait } = paced()
  for (let at = 0; at < 30; at++) assert.equal(wait(TIMINGS.minimumRatePeriodMs - 1, 2 * MIB), false)
  const slow = paced()
  for (let second = 0; second < 5 * 3600; second++) assert.equal(slow.wait(1000, 2000), false, `${second} s`)
})

test('a node that sends too little is too slow after one period, while its caller waits and after a message', () => {
  const { wait } = paced()
  let waited = 0
  while (!wait(1000, 100)) waited += 1000
  assert.equal(waited, TIMINGS.minimumRatePeriodMs - 1000)
  const { clock, rate } = paced()
  rate.beginWait()
  clock.ms += TIMINGS.minimumRatePeriodMs
  assert.equal(rate.isViolated(), true)
})

test('a node at the minimum rate is ended after the maximum number of periods', () => {
  const { wait } = paced()
  let stretches = 0
  while (!wait(TIMINGS.minimumRatePeriodMs, MIB) && stretches < 1000) stretches++
  assert.ok(stretches > 30 && stretches < 40, `${stretches} stretches`)
})

test('time in which several reads of one node wait counts once', () => {
  const { clock, rate } = paced()
  for (let at = 0; at < 4; at++) rate.beginWait()
  clock.ms += TIMINGS.minimumRatePeriodMs - 1
  for (let at = 0; at < 4; at++) rate.endWait()
  assert.equal(rate.isViolated(), false)
})

test('a host that sends without an end reaches its limit, and all its reads end', async () => {
  const host = new HostReading(10 * MIB)
  const piece = Buffer.alloc(MIB)
  async function* flood(): AsyncGenerator<Chunk> {
    yield { status: 200 }
    while (!host.signal.aborted) yield piece
  }
  let bytes = 0
  for await (const chunk of host.read(flood())) if (chunk instanceof Uint8Array) bytes += chunk.length
  assert.equal(bytes, 10 * MIB)
  assert.match(host.lost?.message ?? '', /from each host, read its logs one by one/)
})
