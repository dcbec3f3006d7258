/**
 * Whether an agent knows a connected server. Without one it answers for its own host, and refuses calls for others and tokens that only
 * servers resolve, although NATS is connected.
 */
import type { Logger } from '../../platform/log.ts'
import { pauseDetector } from '../../platform/clock.ts'
import type { MessageBus } from '../nats/message-bus.ts'
import type { ServerKeys } from './server-trust.ts'

const CHECK_INTERVAL_MS = 5000
/** Time for the first announcement after a connection. */
const GRACE_MS = 10_000
/** Servers announce themselves once a minute: two were missed. */
const ANNOUNCEMENT_AGE_MAX_MS = 150_000

export interface ServerWatchOptions {
  readonly keys: Pick<ServerKeys, 'servers'>
  readonly bus: Pick<MessageBus, 'isConnected'>
  readonly logger: Logger
  /** Monotonic clock in milliseconds. Default: `performance.now`. */
  readonly now?: () => number
}

/** Checks at intervals until it is disposed. */
export class ServerWatch {
  readonly #options: ServerWatchOptions
  readonly #now: () => number
  readonly #timer: NodeJS.Timeout
  #connectedAtMs: number | undefined
  #isMissing = false

  constructor(options: ServerWatchOptions) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#timer = setInterval(() => this.check(), CHECK_INTERVAL_MS).unref()
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }

  /** Undefined while a server is connected, and without NATS, which has a check of its own. */
  get warning(): string | undefined {
    return this.#isMissing ? `${NO_SERVER}: calls to other hosts and tokens of the secrets core are refused` : undefined
  }

  check(): void {
    const { bus, keys, logger } = this.#options
    const nowMs = this.#now()
    if (!bus.isConnected) {
      this.#connectedAtMs = undefined
      this.#isMissing = false
      return
    }
    this.#connectedAtMs ??= nowMs
    if (nowMs - this.#connectedAtMs < GRACE_MS || pauseDetector().isCatchingUp) return
    const isMissing = !keys.servers(false).some(({ announcedAtMs }) => nowMs - announcedAtMs < ANNOUNCEMENT_AGE_MAX_MS)
    if (isMissing === this.#isMissing) return
    this.#isMissing = isMissing
    if (isMissing) logger.warn(NO_SERVER, { next: 'start a server, or see "server announcement rejected" in this log' })
    else logger.info('a server is connected again')
  }
}

const NO_SERVER = 'no server is connected'
