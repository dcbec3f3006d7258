/**
 * The message bus between the processes of a cluster: publish, subscribe, and a report when no subscriber receives a
 * message. NATS provides it between machines (`nats-bus.ts`); within one process the same code runs over `MemoryBroker`.
 *
 * `publish` copies its payload, so the publisher may reuse the memory when it returns. Messages of one publisher on one
 * subject arrive in order, or not at all.
 */

export interface BusMessage {
  readonly subject: string
  readonly payload: Uint8Array
  /** Subject for the answer; empty if none is expected. */
  readonly reply: string
  /** True for a report instead of a message: no process subscribes to what was published with this subject as its reply. */
  readonly isNoResponders: boolean
}

export interface BusSubscription {
  close(): void
}

export interface MessageBus {
  /**
   * Publishes `payload` followed by `rest`. Never blocks, and never throws for a lost connection: the message is lost, and
   * its receiver detects the gap.
   */
  publish(subject: string, payload: Uint8Array, reply?: string, rest?: Uint8Array): void
  /** `subject` may end in `.>` and may contain `*` for one part. Each message goes to one subscriber of a `queue`. */
  subscribe(subject: string, take: (message: BusMessage) => void, queue?: string): BusSubscription
  /** Largest payload in bytes. */
  readonly payloadBytesMax: number
  readonly isConnected: boolean
  /** Why there is no connection, without addresses; undefined while connected and before the first attempt. */
  readonly disconnectReason?: string | undefined
  /** Calls back after each change of `isConnected`. */
  onChange(listener: (isConnected: boolean) => void): void
  close(): Promise<void>
}

const EMPTY = new Uint8Array(0)

/** True if a pattern with `*` and a final `>` matches the subject. */
function matchesSubject(pattern: string, subject: string): boolean {
  const expected = pattern.split('.')
  const parts = subject.split('.')
  for (const [at, part] of expected.entries()) {
    if (part === '>') return parts.length > at
    if (parts[at] === undefined || (part !== '*' && part !== parts[at])) return false
  }
  return expected.length === parts.length
}

interface Subscriber {
  readonly pattern: string
  readonly take: (message: BusMessage) => void
  readonly queue: string | undefined
}

/** A broker within one process. */
export class MemoryBroker {
  readonly #subscribers = new Set<Subscriber>()

  /** One connection for each module, so that closing it ends the subscriptions of that module only. */
  connect(): MessageBus {
    return new MemoryConnection(this)
  }

  subscribe(pattern: string, take: (message: BusMessage) => void, queue?: string): BusSubscription {
    const subscriber = { pattern, take, queue }
    this.#subscribers.add(subscriber)
    return { close: () => void this.#subscribers.delete(subscriber) }
  }

  /** Delivers asynchronously, as a network does. */
  publish(subject: string, payload: Uint8Array, reply: string): void {
    queueMicrotask(() => {
      let isReceived = false
      const queues = new Set<string>()
      for (const { pattern, take, queue } of this.#subscribers) {
        if (!matchesSubject(pattern, subject) || (queue !== undefined && queues.has(queue))) continue
        isReceived = true
        if (queue !== undefined) queues.add(queue)
        take({ subject, payload, reply, isNoResponders: false })
      }
      if (!isReceived && reply !== '') this.#reportNoResponders(reply)
    })
  }

  #reportNoResponders(reply: string): void {
    for (const { pattern, take } of this.#subscribers) {
      if (matchesSubject(pattern, reply)) take({ subject: reply, payload: EMPTY, reply: '', isNoResponders: true })
    }
  }
}

class MemoryConnection implements MessageBus {
  readonly payloadBytesMax = 1 << 20
  readonly isConnected = true
  readonly #broker: MemoryBroker
  readonly #subscriptions = new Set<BusSubscription>()
  #isClosed = false

  constructor(broker: MemoryBroker) {
    this.#broker = broker
  }

  publish(subject: string, payload: Uint8Array, reply = '', rest = EMPTY): void {
    if (!this.#isClosed) this.#broker.publish(subject, Buffer.concat([payload, rest]), reply)
  }

  subscribe(subject: string, take: (message: BusMessage) => void, queue?: string): BusSubscription {
    const subscription = this.#broker.subscribe(subject, take, queue)
    this.#subscriptions.add(subscription)
    return {
      close: () => {
        this.#subscriptions.delete(subscription)
        subscription.close()
      },
    }
  }

  onChange(): void {
    // Always connected.
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const subscription of this.#subscriptions) subscription.close()
    this.#subscriptions.clear()
  }
}
