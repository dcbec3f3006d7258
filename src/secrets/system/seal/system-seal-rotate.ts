/** `sys/rotate` and `sys/key-status`: rotation of the encryption key of entries. */
import type { Storage } from '../../../storage/barrier/storage.ts'
import type { Barrier } from '../../../storage/barrier/barrier.ts'
import * as v from 'valibot'
import { type EngineCall, path, type Path, Rejection } from '../../../engines/framework/engine.ts'
import { boolean, duration, integer } from '../../../engines/framework/fields.ts'
import { Fault } from '../../../platform/errors.ts'
import type { WithOptions, OpenStores, WithClock } from '../core-parts.ts'
import { sealLog } from './seal-access.ts'

const CONFIG_PATH = 'core/rotate-config'
/** The barrier rotates the key at this number even if automatic rotation is disabled. */
const OPERATIONS_MAX = 2 ** 31
const OPERATIONS_MIN = 1_000_000
const INTERVAL_MIN_SECONDS = 86_400

const configSchema = v.object({
  enabled: v.boolean(),
  /** Encryptions with one key. */
  operationsMax: v.number(),
  /** Age of a key; 0 for no limit. */
  intervalSeconds: v.number(),
})

export type RotateConfig = v.InferOutput<typeof configSchema>

const DEFAULTS: RotateConfig = { enabled: true, operationsMax: OPERATIONS_MAX, intervalSeconds: 0 }

interface RotatingCore {
  readonly barrier: Pick<Barrier, 'rotate' | 'status'>
}

export function rotatePaths(core: RotatingCore & WithOptions<'logger'>): Path[] {
  const logEvent = sealLog(core)
  const rotate = async (_input: object, call: EngineCall) => {
    const term = await core.barrier.rotate()
    logEvent('encryption key rotated', call, { term })
    return undefined
  }
  const summary = 'Rotate the encryption key'
  return [
    path({
      pattern: 'key-status',
      summary: 'Read the state of the current encryption key',
      fields: {},
      read() {
        const { encryptions, installedAtMs, term } = core.barrier.status
        return { data: { term, install_time: new Date(installedAtMs).toISOString(), encryptions }, flattened: true }
      },
    }),
    path({ pattern: 'rotate', summary, sudo: true, fields: {}, update: rotate }),
    path({ pattern: 'rotate/keyring', summary, sudo: true, fields: {}, update: rotate }),
    configPath(),
  ]
}

function configPath(): Path {
  return path({
    pattern: 'rotate/config',
    summary: 'Read or write the settings of automatic rotation of the encryption key',
    sudo: (verb) => verb !== 'read',
    fields: {
      enabled: boolean('False disables rotation except at the fixed limit'),
      max_operations: integer('Maximum number of encryptions with one key'),
      interval: duration('Maximum age of a key; 0 for no limit'),
    },
    read(_input, { storage }) {
      const { enabled, intervalSeconds, operationsMax } = rotateConfig(storage.get(CONFIG_PATH))
      return { data: { enabled, interval: intervalSeconds, max_operations: operationsMax } }
    },
    update({ enabled, interval, max_operations: operations }, { storage }) {
      const before = rotateConfig(storage.pending(CONFIG_PATH))
      const config: RotateConfig = {
        enabled: enabled ?? before.enabled,
        operationsMax: operations ?? before.operationsMax,
        intervalSeconds: interval ?? before.intervalSeconds,
      }
      if (config.operationsMax < OPERATIONS_MIN || config.operationsMax > OPERATIONS_MAX) {
        throw new Rejection(400, `max_operations must be between ${OPERATIONS_MIN} and ${OPERATIONS_MAX}`)
      }
      if (config.intervalSeconds !== 0 && config.intervalSeconds < INTERVAL_MIN_SECONDS) {
        throw new Rejection(400, 'interval must be 0 or at least 24h')
      }
      return { batch: { puts: [{ path: CONFIG_PATH, value: Buffer.from(JSON.stringify(config)) }], deletes: [] } }
    },
  })
}

function rotateConfig(entry: Buffer | undefined): RotateConfig {
  if (!entry) return DEFAULTS
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), configSchema), entry.toString())
  if (!parsed.success) throw new Fault(`the entry ${CONFIG_PATH} is damaged`)
  return parsed.output
}

/** True if the active key has reached a limit. The barrier must be unsealed. */
export function isRotationDue(core: RotatingCore & WithClock & OpenStores<{ readonly storage: Storage }>): boolean {
  const { enabled, intervalSeconds, operationsMax } = rotateConfig(core.open.storage.get(CONFIG_PATH))
  const { encryptions, installedAtMs } = core.barrier.status
  const isOld = intervalSeconds > 0 && core.now() - installedAtMs >= intervalSeconds * 1000
  return enabled && (isOld || encryptions >= operationsMax)
}
