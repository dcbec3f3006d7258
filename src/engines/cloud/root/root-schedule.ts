/** Automated rotation of the root access key by the terms of its configuration, and retries of rotations that failed. */
import { randomInt } from 'node:crypto'
import { messageOf } from '../../../platform/errors.ts'
import type { Storage } from '../../../storage/barrier/storage.ts'
import type { PeriodicCall } from '../../framework/engine.ts'
import { rootOf } from '../aws/root-record.ts'
import { rotateRootKey } from './rotate-root.ts'
import { isInWindow, nextRotationMs } from './rotation-terms.ts'

const FIRST_PAUSE_MS = 10_000
const PAUSE_MAX_MS = 300_000
const ROTATION_TIMEOUT_MS = 60_000

/** The schedule of the root key of a mount. */
export class RootSchedule {
  #failures = 0
  #nextAtMs = 0

  static of({ storage }: { readonly storage: Storage }): RootSchedule {
    let schedule = schedules.get(storage)
    if (!schedule) schedules.set(storage, (schedule = new RootSchedule()))
    return schedule
  }

  async run(call: PeriodicCall): Promise<void> {
    const { logger, nowMs, storage } = call
    const config = rootOf((each) => storage.get(each))
    if (!config || config.isRotationDisabled || nowMs < this.#nextAtMs) return
    const window = config.rotationWindowSeconds * 1000
    // A rotation outside of its window waits for the next one.
    const fromMs = window > 0 ? Math.max(config.rotationFromMs, nowMs - window) : config.rotationFromMs
    const dueMs = nextRotationMs(config, fromMs)
    if (dueMs === undefined || dueMs > nowMs || !isInWindow(config, dueMs, nowMs)) return
    try {
      const signal = AbortSignal.any([call.signal, AbortSignal.timeout(ROTATION_TIMEOUT_MS)])
      await rotateRootKey({ mount: call.mount, storage, nowMs, signal })
      this.#failures = 0
      logger.info('root access key rotated', { mount: call.mount.path })
    } catch (error) {
      const pauseMs = Math.min(PAUSE_MAX_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures++, 10))
      this.#nextAtMs = nowMs + pauseMs * (0.8 + randomInt(400) / 1000)
      logger.warn('root access key rotation failed, will retry', {
        mount: call.mount.path,
        error: messageOf(error),
      })
    }
  }
}

const schedules = new WeakMap<Storage, RootSchedule>()
