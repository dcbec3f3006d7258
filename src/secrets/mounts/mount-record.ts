/** The stored record of a mount, one entry for each mount. */
import { randomBytes, randomUUID } from 'node:crypto'
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { parseRecord } from '../../platform/stored-record.ts'
import { textRecord } from '../../engines/framework/records.ts'

export const MOUNTS_PREFIX = 'core/mounts/'
/** Prefix of the paths of auth methods. */
export const AUTH_PREFIX = 'auth/'

const configSchema = v.object({
  /** 0 for the system's limit. */
  defaultLeaseSeconds: v.number(),
  maxLeaseSeconds: v.number(),
  forceNoCache: v.boolean(),
  listingVisibility: v.picklist(['', 'unauth', 'hidden']),
  tokenType: v.optional(v.string()),
  userLockout: v.optional(
    v.object({
      threshold: v.number(),
      durationSeconds: v.number(),
      counterResetSeconds: v.number(),
      isDisabled: v.boolean(),
    }),
  ),
  auditNonHmacRequestKeys: v.optional(v.array(v.string())),
  auditNonHmacResponseKeys: v.optional(v.array(v.string())),
  passthroughRequestHeaders: v.optional(v.array(v.string())),
  allowedResponseHeaders: v.optional(v.array(v.string())),
})

const mountSchema = v.object({
  uuid: v.string(),
  path: v.string(),
  type: v.string(),
  accessor: v.string(),
  description: v.string(),
  options: textRecord,
  config: configSchema,
  local: v.boolean(),
  sealWrap: v.boolean(),
  /** 32 random bytes in base64: the key with which an engine hashes names of its entries. */
  secret: v.pipe(v.string(), v.base64()),
  /** Set while the mount is being removed. It serves no requests, and the next unsealed core continues the removal. */
  isLeaving: v.boolean(),
})

/** The lockout of a mount without `user_lockout_config`. */
export const DEFAULT_LOCKOUT = { threshold: 5, durationSeconds: 900, counterResetSeconds: 900, isDisabled: false }

export type MountConfig = v.InferOutput<typeof configSchema>

export type MountRecord = v.InferOutput<typeof mountSchema>

/** Engines of the core itself. */
const OWN_TYPES = new Set(['system', 'token', 'identity'])

export function isOwnType(type: string): boolean {
  return OWN_TYPES.has(type)
}

export function isAuthPath(path: string): boolean {
  return path.startsWith(AUTH_PREFIX)
}

export function recordPath(uuid: string): string {
  return MOUNTS_PREFIX + uuid
}

/** Path of a mount's data. */
export function dataPrefix(uuid: string): string {
  return `logical/${uuid}/`
}

/** Throws a Fault for a damaged record. */
export function parseMountRecord(bytes: Buffer): MountRecord {
  return parseRecord(mountSchema, bytes, 'a mount')
}

/** Whether a mount is enabled, by its record. `storage` is all of the barrier. Throws a Fault for a damaged record. */
export function isEnabledByRecord(storage: Pick<Storage, 'get'>, uuid: string): boolean {
  const bytes = storage.get(recordPath(uuid))
  return bytes !== undefined && !parseMountRecord(bytes).isLeaving
}

/** The records of all mounts, including those that are being removed. Throws a Fault for a damaged record. */
export function readRecords(storage: Storage): MountRecord[] {
  return storage.list(MOUNTS_PREFIX).flatMap((name) => {
    const bytes = storage.get(MOUNTS_PREFIX + name)
    return bytes ? [parseMountRecord(bytes)] : []
  })
}

export function encodeRecord(record: MountRecord): Buffer {
  return Buffer.from(JSON.stringify(record))
}

export const DEFAULT_CONFIG: MountConfig = Object.freeze({
  defaultLeaseSeconds: 0,
  maxLeaseSeconds: 0,
  forceNoCache: false,
  listingVisibility: '',
})

/** A record with a new UUID, accessor and secret. */
export function newRecord(given: Pick<MountRecord, 'path' | 'type'> & Partial<MountRecord>): MountRecord {
  return {
    description: '',
    options: {},
    config: DEFAULT_CONFIG,
    local: false,
    sealWrap: false,
    isLeaving: false,
    ...given,
    uuid: randomUUID(),
    secret: randomBytes(32).toString('base64'),
    accessor: `${isAuthPath(given.path) ? 'auth_' : ''}${given.type}_${randomBytes(4).toString('hex')}`,
  }
}

/** The mount of `identity/`. */
export function identityRecord(): MountRecord {
  const config = { ...DEFAULT_CONFIG, passthroughRequestHeaders: ['Authorization'] }
  return newRecord({ path: 'identity/', type: 'identity', description: 'identity store', config })
}

/** The mounts of a new core. */
export function defaultRecords(): MountRecord[] {
  return [
    newRecord({
      path: 'sys/',
      type: 'system',
      description: 'system endpoints used for control, policy and debugging',
      config: { ...DEFAULT_CONFIG, passthroughRequestHeaders: ['Accept'] },
      sealWrap: true,
    }),
    newRecord({
      path: 'auth/token/',
      type: 'token',
      description: 'token based credentials',
      config: { ...DEFAULT_CONFIG, tokenType: 'default-service' },
    }),
    newRecord({ path: 'cubbyhole/', type: 'cubbyhole', description: 'per-token private secret storage', local: true }),
    identityRecord(),
  ]
}
