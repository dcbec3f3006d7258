/** Runs the periodic work of engines (`Engine.periodic`) for each mount, about once a second. A slow or failing mount does not delay the others. */
import type { PeriodicCall } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import type { Mount } from './mounts.ts'

const INTERVAL_MS = 1000
const LOG_INTERVAL_MS = 60_000

export interface PeriodicWorkOptions {
  readonly mounts: () => readonly Mount[]
  readonly now: () => number
  /** A fenced DR primary can commit nothing: the work waits until it serves again. */
  readonly isFenced: () => boolean
  readonly logger: Logger
}

export class PeriodicWork {
  readonly #options: PeriodicWorkOptions
  readonly #closed = new AbortController()
  /** By the mount's UUID. */
  readonly #underWay = new Map<string, Promise<void>>()
  readonly #failures = new LogOnce({ everyMs: LOG_INTERVAL_MS })
  readonly #timer: NodeJS.Timeout

  constructor(options: PeriodicWorkOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.tick(), INTERVAL_MS)
    this.#timer.unref()
  }

  /** Resolves when the work of each mount that is due now is complete. Never rejects. */
  async tick(): Promise<void> {
    if (this.#closed.signal.aborted || this.#options.isFenced()) return
    const mounts = this.#options.mounts().filter(({ engine }) => 'periodic' in engine)
    await Promise.all(mounts.map((mount) => this.#work(mount)))
  }

  /** Undoes external effects of a mount before it is disabled, besides its leases. Resolves to the errors that prevent it. */
  async release(mount: Mount): Promise<readonly string[]> {
    await this.#underWay.get(mount.record.uuid)
    return (await mount.engine.release?.(this.#call(mount))) ?? []
  }

  close(): void {
    clearInterval(this.#timer)
    this.#closed.abort()
  }

  #work(mount: Mount): Promise<void> {
    const { uuid } = mount.record
    let work = this.#underWay.get(uuid)
    if (!work) {
      work = this.#round(mount).finally(() => this.#underWay.delete(uuid))
      this.#underWay.set(uuid, work)
    }
    return work
  }

  async #round(mount: Mount): Promise<void> {
    try {
      await mount.engine.periodic?.(this.#call(mount))
    } catch (error) {
      if (this.#closed.signal.aborted || this.#failures.due() === 0) return
      const { path, type } = mount.record
      this.#options.logger.warn('periodic work of an engine failed, will retry', {
        mount: path,
        type,
        error: messageOf(error),
      })
    }
  }

  #call({ facts, storage }: Mount): PeriodicCall {
    const { logger, now } = this.#options
    return { mount: facts, storage, nowMs: now(), logger, signal: this.#closed.signal }
  }
}
