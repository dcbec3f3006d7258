/**
 * What the room needs of a message bus: publish, subscribe, and word when nobody listens. NATS gives that between
 * machines (`nats-link.ts`); in one process the same code runs over `MemoryLink`.
 *
 * A payload is the publisher's again when `publish` returns. Messages of one publisher on one subject arrive in order, or
 * not at all.
 */

export interface Message {
  readonly subject: string
  readonly payload: Uint8Array
  /** Where an answer is expected; empty when nowhere. */
  readonly reply: string
  /** Not a message: it tells that nobody listened to one that we sent with this subject as its reply. */
  readonly nobody: boolean
}

export interface Subscription {
  close(): void
}

export interface Link {
  /**
   * Never blocks and never throws for a lost connection: what cannot be sent is lost, and found missing by its reader.
   * The message is `payload` with `rest` behind it.
   */
  publish(subject: string, payload: Uint8Array, reply?: string, rest?: Uint8Array): void
  /** `subject` may end in `.>` or hold `*` for one part. Of all who subscribe with the same `queue`, one gets each message. */
  subscribe(subject: string, take: (message: Message) => void, queue?: string): Subscription
  /** Largest payload in bytes. */
  readonly payloadBytesMax: number
  readonly isConnected: boolean
  /** Told of every change of `isConnected`. */
  onChange(tell: (isConnected: boolean) => void): void
  close(): Promise<void>
}

const EMPTY = new Uint8Array(0)

/** True when a pattern with `*` and a last `>` covers the subject. */
export function covers(pattern: string, subject: string): boolean {
  const wanted = pattern.split('.')
  const parts = subject.split('.')
  for (const [at, part] of wanted.entries()) {
    if (part === '>') return parts.length > at
    if (parts[at] === undefined || (part !== '*' && part !== parts[at])) return false
  }
  return wanted.length === parts.length
}

interface Taker {
  readonly pattern: string
  readonly take: (message: Message) => void
  readonly queue: string | undefined
}

/** A bus within one process. */
export class MemoryBus {
  readonly #takers = new Set<Taker>()

  /** A link of its own for each part of the process, so that closing one ends its subscriptions only. */
  link(): Link {
    return new MemoryLink(this)
  }

  subscribe(pattern: string, take: (message: Message) => void, queue?: string): Subscription {
    const taker = { pattern, take, queue }
    this.#takers.add(taker)
    return { close: () => void this.#takers.delete(taker) }
  }

  /** Delivers in a task of its own, as a network would. */
  publish(subject: string, payload: Uint8Array, reply: string): void {
    queueMicrotask(() => {
      let heard = false
      const queues = new Set<string>()
      for (const { pattern, take, queue } of this.#takers) {
        if (!covers(pattern, subject) || (queue !== undefined && queues.has(queue))) continue
        heard = true
        if (queue !== undefined) queues.add(queue)
        take({ subject, payload, reply, nobody: false })
      }
      if (!heard && reply !== '') this.#tellNobody(reply)
    })
  }

  #tellNobody(reply: string): void {
    for (const { pattern, take } of this.#takers) {
      if (covers(pattern, reply)) take({ subject: reply, payload: EMPTY, reply: '', nobody: true })
    }
  }
}

class MemoryLink implements Link {
  readonly payloadBytesMax = 1 << 20
  readonly isConnected = true
  readonly #bus: MemoryBus
  readonly #own = new Set<Subscription>()
  #closed = false

  constructor(bus: MemoryBus) {
    this.#bus = bus
  }

  publish(subject: string, payload: Uint8Array, reply = '', rest = EMPTY): void {
    if (!this.#closed) this.#bus.publish(subject, Buffer.concat([payload, rest]), reply)
  }

  subscribe(subject: string, take: (message: Message) => void, queue?: string): Subscription {
    const subscription = this.#bus.subscribe(subject, take, queue)
    this.#own.add(subscription)
    return {
      close: () => {
        this.#own.delete(subscription)
        subscription.close()
      },
    }
  }

  onChange(): void {
    // It is always connected.
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const subscription of this.#own) subscription.close()
    this.#own.clear()
  }
}
