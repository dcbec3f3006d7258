/** The deficit round-robin queue: order, limits, fairness, and waiting producers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NODE_BYTES_MAX, DeficitRoundRobinQueue, TOTAL_BYTES_MAX } from '../../../src/cluster/api/byte-queue.ts'
import { Random } from '../../helpers/frames.ts'

const SEEDS = Array.from({ length: 20 }, (_, seed) => seed + 1)
const CHUNK_BYTES_MAX = 200_000

interface Producer {
  readonly nodeId: string
  readonly serial: number
  sent: number
  received: number
  isWaiting: boolean
}

/** A chunk that names its producer and its number. */
function chunkOf(producer: Producer, length: number): Buffer {
  const chunk = Buffer.alloc(Math.max(8, length))
  chunk.writeUInt32BE(producer.serial)
  chunk.writeUInt32BE(producer.sent++, 4)
  return chunk
}

test('chunks of each producer keep their order within the limits, and no producer waits while the queue is empty', async () => {
  for (const seed of SEEDS) {
    const random = new Random(seed)
    const queue = new DeficitRoundRobinQueue()
    const producers: Producer[] = Array.from({ length: random.between(1, 60) }, (_, serial) => ({
      nodeId: `node-${random.between(0, 8)}`,
      serial,
      sent: 0,
      received: 0,
      isWaiting: false,
    }))
    const take = () => {
      const chunk = queue.take()
      if (!chunk) return
      const producer = producers[chunk.readUInt32BE()]
      assert.ok(producer)
      assert.equal(chunk.readUInt32BE(4), producer.received++, `seed ${seed}: order`)
    }
    const put = async (producer: Producer) => {
      producer.isWaiting = true
      const length = random.chance(0.3) ? 0 : random.between(1, random.chance(0.2) ? CHUNK_BYTES_MAX : 500)
      const chunk = length === 0 ? Buffer.alloc(0) : chunkOf(producer, length)
      const isOpen = await queue.put(producer.nodeId, chunk)
      producer.isWaiting = !isOpen
    }
    for (let step = 0; step < 3000; step++) {
      if (random.chance(0.45)) take()
      else {
        const producer = producers[random.between(0, producers.length - 1)]
        if (producer && !producer.isWaiting) void put(producer)
      }
      if (random.chance(0.2)) await Promise.resolve()
      assert.ok(queue.bytes <= TOTAL_BYTES_MAX + producers.length * CHUNK_BYTES_MAX)
    }
    while (queue.length > 0) take()
    await Promise.resolve()
    for (const { isWaiting, received, sent } of producers) {
      assert.equal(isWaiting, false, `seed ${seed}: a producer waits for an empty queue`)
      assert.equal(received, sent, `seed ${seed}: a chunk was lost`)
    }
    assert.equal(queue.bytes, 0)
  }
})

test('a producer waits above the limit of its node and above the total limit', async () => {
  const queue = new DeficitRoundRobinQueue()
  const waiting = new Set<string>()
  const put = async (nodeId: string) => {
    waiting.add(nodeId)
    await queue.put(nodeId, Buffer.alloc(NODE_BYTES_MAX))
    waiting.delete(nodeId)
  }
  const nodes = TOTAL_BYTES_MAX / NODE_BYTES_MAX
  for (let serial = 0; serial < nodes; serial++) void put(`node-${serial}`)
  await Promise.resolve()
  await Promise.resolve()
  assert.equal(waiting.size, 0)
  void put('node-0')
  void put('another')
  await Promise.resolve()
  await Promise.resolve()
  assert.deepEqual([...waiting], ['node-0', 'another'])
  while (queue.take()) await Promise.resolve()
  await Promise.resolve()
  assert.equal(waiting.size, 0)
  const closed = Array.from({ length: 9 }, () => queue.put('node-0', Buffer.alloc(NODE_BYTES_MAX)))
  queue.close()
  assert.deepEqual(
    await Promise.all(closed.slice(1)),
    Array.from({ length: 8 }, () => false),
  )
  assert.equal(await queue.put('node-0', Buffer.alloc(1)), false)
  assert.equal(queue.take(), undefined)
})

test('neither many producers nor large chunks increase the share of a node', () => {
  const queue = new DeficitRoundRobinQueue()
  const bytes = new Map<number, number>()
  const put = (nodeId: number, length: number) => void queue.put(String(nodeId), Buffer.alloc(length, nodeId))
  const refill = [() => put(0, 1000), () => put(1, CHUNK_BYTES_MAX), () => put(2, 16_000)]
  for (let count = 0; count < 300; count++) for (const one of refill) one()
  for (let count = 0; count < 3000; count++) {
    const chunk = queue.take()
    assert.ok(chunk)
    const nodeId = chunk[0] ?? 0
    bytes.set(nodeId, (bytes.get(nodeId) ?? 0) + chunk.length)
    refill[nodeId]?.()
  }
  const [small = 0, large = 0, medium = 0] = [0, 1, 2].map((nodeId) => bytes.get(nodeId))
  const most = Math.max(small, large, medium)
  assert.ok(most - Math.min(small, large, medium) <= 2 * CHUNK_BYTES_MAX, `${small}, ${large}, ${medium}`)
})

test('a node with one large chunk at a time pays its deficit after its queue was empty', () => {
  const queue = new DeficitRoundRobinQueue()
  let large = 0
  let small = 0
  void queue.put('large', Buffer.alloc(CHUNK_BYTES_MAX))
  void queue.put('small', Buffer.alloc(1000))
  while (large + small < 100 * CHUNK_BYTES_MAX) {
    const length = queue.take()?.length ?? 0
    if (length === CHUNK_BYTES_MAX) large += length
    else small += length
    void queue.put(length === CHUNK_BYTES_MAX ? 'large' : 'small', Buffer.alloc(length))
  }
  // One small chunk at a time gets one chunk for each turn; the large node has one turn in four.
  const turns = [small / 1000, large / CHUNK_BYTES_MAX] as const
  assert.ok(turns[0] >= 2 * turns[1], `${turns[0]} turns and ${turns[1]}`)
})
