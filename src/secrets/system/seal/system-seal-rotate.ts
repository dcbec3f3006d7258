/** The key that entries are encrypted with: which one it is, and when it gives way to the next. */
import type { Storage } from '../../../storage/barrier/storage.ts'
import type { Barrier } from '../../../storage/barrier/barrier.ts'
import * as v from 'valibot'
import { type EngineCall, path, type Path, Rejection } from '../../../engines/framework/engine.ts'
import { boolean, duration, integer } from '../../../engines/framework/fields.ts'
import { Fault } from '../../../platform/errors.ts'
import type { WithOptions, OpenStores, WithClock } from '../core-parts.ts'
import { sealLog } from './seal-log.ts'

const CONFIG_PATH = 'core/rotate-config'
/** Where the barrier goes over to the next key whatever anybody says. */
const OPERATIONS_MAX = 2 ** 31
const OPERATIONS_MIN = 1_000_000
const INTERVAL_MIN_SECONDS = 86_400

const configSchema = v.object({
  enabled: v.boolean(),
  /** Encryptions of one key. */
  operationsMax: v.number(),
  /** Age of a key; 0 for any. */
  intervalSeconds: v.number(),
})

export type RotateConfig = v.InferOutput<typeof configSchema>

const DEFAULTS: RotateConfig = { enabled: true, operationsMax: OPERATIONS_MAX, intervalSeconds: 0 }

interface Rotated {
  readonly barrier: Pick<Barrier, 'rotate' | 'status'>
}

export function rotatePaths(core: Rotated & WithOptions<'logger'>): Path[] {
  const tell = sealLog(core)
  const rotate = async (_input: object, call: EngineCall) => {
    const term = await core.barrier.rotate()
    tell('the key of the entries was changed', call, { term })
    return undefined
  }
  const summary = 'Go over to a new key: what is written from now on is encrypted with it'
  return [
    path({
      pattern: 'key-status',
      summary: 'Which key entries are encrypted with',
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
    summary: 'When the key gives way to the next by itself',
    sudo: (verb) => verb !== 'read',
    fields: {
      enabled: boolean('False leaves it to the bound that cannot be switched off'),
      max_operations: integer('Encryptions of one key'),
      interval: duration('Age of a key; 0 for any'),
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

/** Whether the active key has served long enough. The barrier is open. */
export function isRotationDue(core: Rotated & WithClock & OpenStores<{ readonly storage: Storage }>): boolean {
  const { enabled, intervalSeconds, operationsMax } = rotateConfig(core.open.storage.get(CONFIG_PATH))
  const { encryptions, installedAtMs } = core.barrier.status
  const isOld = intervalSeconds > 0 && core.now() - installedAtMs >= intervalSeconds * 1000
  return enabled && (isOld || encryptions >= operationsMax)
}
