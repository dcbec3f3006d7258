/**
 * Peer: bare NATS. One process is the `source` and publishes, one is the `sink` and measures: a stream of
 * messages under credit, small requests and their responses, single lines. The sizes, the credit and the
 * number of concurrent requests are those of a forwarded call.
 */
import { connect, type Msg, type NatsConnection } from '@nats-io/transport-node'
import { helperOptions } from '../child.ts'
import { nowMs } from '../measure.ts'

export type Order =
  /** The response is the duration in milliseconds. */
  | { readonly kind: 'stream'; readonly bytes: number; readonly messageBytes: number; readonly windowBytes: number }
  /** The response is the number of requests per second. */
  | { readonly kind: 'requests'; readonly bytes: number; readonly atOnce: number; readonly durationMs: number }
  /** The response has the latency of each. */
  | { readonly kind: 'lines'; readonly bytes: number; readonly count: number; readonly everyMs: number }

export type Answer = readonly number[]

const number = (bytes: Uint8Array, at: number) => Buffer.from(bytes).readDoubleLE(at)

function numbers(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(8 * values.length)
  for (const [index, value] of values.entries()) bytes.writeDoubleLE(value, 8 * index)
  return bytes
}

function serve(bus: NatsConnection): void {
  const answer = Buffer.alloc(1 << 20, 'x')
  bus.subscribe('bench.request', {
    callback: (_error, message) => void message.respond(answer.subarray(0, number(message.data, 0))),
  })
  bus.subscribe('bench.lines', {
    callback: (_error, message) => {
      const [count, everyMs, bytes] = [number(message.data, 0), number(message.data, 8), number(message.data, 16)]
      let sent = 0
      const timer = setInterval(() => {
        const line = Buffer.alloc(bytes)
        line.writeDoubleLE(nowMs())
        message.respond(line)
        if (++sent === count) clearInterval(timer)
      }, everyMs)
    },
  })
  bus.subscribe('bench.stream', { callback: (_error, message) => stream(bus, message) })
}

function stream(bus: NatsConnection, { data, reply = '' }: Msg): void {
  const [bytes, messageBytes, windowBytes] = [number(data, 0), number(data, 8), number(data, 16)]
  const part = Buffer.alloc(messageBytes, 'x')
  let [sent, taken] = [0, 0]
  const more = () => {
    if (sent === bytes || sent - taken >= windowBytes) return
    const length = Math.min(messageBytes, bytes - sent)
    bus.publish(reply, part.subarray(0, length))
    sent += length
    // Like a program that reads a file in between.
    setImmediate(more)
  }
  const credit = bus.subscribe(`${reply}.credit`, {
    callback: (_error, message) => {
      taken = number(message.data, 0)
      if (taken === bytes) credit.unsubscribe()
      else more()
    },
  })
  void bus.flush().then(more)
}

function takeStream(bus: NatsConnection, order: Extract<Order, { kind: 'stream' }>): Promise<Answer> {
  const reply = 'bench.reply'
  const beganMs = nowMs()
  return new Promise((resolve) => {
    let [got, credited] = [0, 0]
    const subscription = bus.subscribe(reply, {
      callback: (_error, { data }) => {
        got += data.length
        if (got - credited < order.windowBytes / 8 && got < order.bytes) return
        credited = got
        bus.publish(`${reply}.credit`, numbers(got))
        if (got < order.bytes) return
        subscription.unsubscribe()
        resolve([nowMs() - beganMs])
      },
    })
    bus.publish('bench.stream', numbers(order.bytes, order.messageBytes, order.windowBytes), { reply })
  })
}

async function request(bus: NatsConnection, order: Extract<Order, { kind: 'requests' }>): Promise<Answer> {
  const beganMs = nowMs()
  let done = 0
  const one = async () => {
    while (nowMs() - beganMs < order.durationMs) {
      const { data } = await bus.request('bench.request', numbers(order.bytes), { timeout: 5000 })
      if (data.length !== order.bytes) throw new Error('a short answer')
      done++
    }
  }
  await Promise.all(Array.from({ length: order.atOnce }, one))
  return [done / ((nowMs() - beganMs) / 1000)]
}

function takeLines(bus: NatsConnection, order: Extract<Order, { kind: 'lines' }>): Promise<Answer> {
  return new Promise((resolve) => {
    const latencies: number[] = []
    const subscription = bus.subscribe('bench.line', {
      callback: (_error, { data }) => {
        latencies.push(nowMs() - number(data, 0))
        if (latencies.length < order.count) return
        subscription.unsubscribe()
        resolve(latencies)
      },
    })
    bus.publish('bench.lines', numbers(order.count, order.everyMs, order.bytes), { reply: 'bench.line' })
  })
}

const { url = '', role = '' } = helperOptions()
const bus = await connect({ servers: [url] })
if (role === 'source') serve(bus)
process.on('message', (message) => {
  const order = message as Order
  const answer =
    order.kind === 'stream'
      ? takeStream(bus, order)
      : order.kind === 'requests'
        ? request(bus, order)
        : takeLines(bus, order)
  void answer.then((said) => process.send?.(said))
})
await bus.flush()
process.send?.([])
