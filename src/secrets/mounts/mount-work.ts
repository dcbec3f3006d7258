/**
 * What engines do by themselves at their mounts (`Engine.periodic`), about once a second. One mount that takes long, or
 * fails, holds up no other.
 */
import type { WorkCall } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import type { Mount } from './mounts.ts'

const EVERY_MS = 1000
const TOLD_EVERY_MS = 60_000

export interface MountWorkOptions {
  readonly mounts: () => readonly Mount[]
  readonly now: () => number
  readonly logger: Logger
}

export class MountWork {
  readonly #options: MountWorkOptions
  readonly #ended = new AbortController()
  /** By the mount's UUID. */
  readonly #underWay = new Map<string, Promise<void>>()
  readonly #failures = new LogOnce({ everyMs: TOLD_EVERY_MS })
  readonly #timer: NodeJS.Timeout

  constructor(options: MountWorkOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.tick(), EVERY_MS)
    this.#timer.unref()
  }

  /** Resolves when each mount has done what is due now. Never rejects. */
  async tick(): Promise<void> {
    if (this.#ended.signal.aborted) return
    const busy = this.#options.mounts().filter(({ engine }) => 'periodic' in engine)
    await Promise.all(busy.map((mount) => this.#work(mount)))
  }

  /** Undoes what a mount that is to be disabled did outside, besides its leases; resolves with texts of what is left. */
  async release(mount: Mount): Promise<readonly string[]> {
    await this.#underWay.get(mount.record.uuid)
    return (await mount.engine.release?.(this.#call(mount))) ?? []
  }

  close(): void {
    clearInterval(this.#timer)
    this.#ended.abort()
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
      if (this.#ended.signal.aborted || this.#failures.due() === 0) return
      const { path, type } = mount.record
      this.#options.logger.warn('an engine could not do its own work; it is tried again', {
        mount: path,
        type,
        error: messageOf(error),
      })
    }
  }

  #call({ facts, storage }: Mount): WorkCall {
    const { logger, now } = this.#options
    return { mount: facts, storage, nowMs: now(), logger, signal: this.#ended.signal }
  }
}
