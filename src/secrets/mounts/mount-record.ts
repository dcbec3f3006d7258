/** What is kept of a mount: an entry of its own for each, so that a change of one touches no other. */
import { randomBytes, randomUUID } from 'node:crypto'
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Fault } from '../../platform/errors.ts'
import { textRecord } from '../../engines/framework/records.ts'

export const MOUNTS_PREFIX = 'core/mounts/'
/** What the path of an auth method's mount begins with. */
export const AUTH_PREFIX = 'auth/'

const configSchema = v.object({
  /** 0: the system's. */
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
  /** 32 random bytes in base64, with which an engine hides what it calls its entries. */
  secret: v.pipe(v.string(), v.base64()),
  /** Set while its data is being removed: it serves nobody any more, and a start goes on with it. */
  isLeaving: v.boolean(),
})

/** How many wrong passwords lock a name out, and how long, where a mount says nothing of it. */
export const DEFAULT_LOCKOUT = { threshold: 5, durationSeconds: 900, counterResetSeconds: 900, isDisabled: false }

export type MountConfig = v.InferOutput<typeof configSchema>

export type MountRecord = v.InferOutput<typeof mountSchema>

/** Types of the core's own engines. */
const OWN_TYPES = new Set(['system', 'token', 'identity'])

export function isOwnType(type: string): boolean {
  return OWN_TYPES.has(type)
}

export function isAuthPath(path: string): boolean {
  return path.startsWith(AUTH_PREFIX)
}

/** Where a record is kept. */
export function recordPath(uuid: string): string {
  return MOUNTS_PREFIX + uuid
}

/** Where a mount's data is kept. */
export function dataPrefix(uuid: string): string {
  return `logical/${uuid}/`
}

/** Throws a Fault for a record that is damaged. */
export function parseRecord(bytes: Buffer): MountRecord {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), mountSchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the record of a mount is damaged')
  return parsed.output
}

/** Whether a mount is enabled, by its record. `storage` is all of the barrier. Throws a Fault for a record that is damaged. */
export function hasServingRecord(storage: Pick<Storage, 'get'>, uuid: string): boolean {
  const kept = storage.get(recordPath(uuid))
  return kept !== undefined && !parseRecord(kept).isLeaving
}

/** The records of all mounts, those included whose data is being removed. Throws a Fault for one that is damaged. */
export function readRecords(storage: Storage): MountRecord[] {
  return storage.list(MOUNTS_PREFIX).flatMap((name) => {
    const kept = storage.get(MOUNTS_PREFIX + name)
    return kept ? [parseRecord(kept)] : []
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

/** A record with an identity of its own. */
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

/** Where identity is. */
export function identityRecord(): MountRecord {
  const config = { ...DEFAULT_CONFIG, passthroughRequestHeaders: ['Authorization'] }
  return newRecord({ path: 'identity/', type: 'identity', description: 'identity store', config })
}

/** What every core has from its beginning. */
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
