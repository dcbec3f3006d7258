/**
 * Stored records of users and static roles. An *intent* is committed before a user is created in AWS. It is deleted by the commit
 * that stores the lease of the user, or once AWS has confirmed that the user does not exist.
 */
import { randomBytes } from 'node:crypto'
import * as v from 'valibot'
import type { Storage } from '../../../storage/barrier/storage.ts'
import { type AccountLocation, locationField } from '../aws/account.ts'
import { StoredRecord, type ReadEntry } from '../../framework/records.ts'
import { ENTRY_PATHS, NamedRecords } from '../aws/entries.ts'

const intentSchema = v.object({
  format: v.literal(1),
  id: v.string(),
  kind: v.literal('user'),
  username: v.string(),
  role: v.string(),
  createdAtMs: v.number(),
  place: locationField,
  /** Whether the user has a tag with the ID of the intent. */
  isTagged: v.boolean(),
})

export type UserIntent = v.InferOutput<typeof intentSchema>

const intents = new StoredRecord(intentSchema, 'an intent')

const userSchema = v.object({
  format: v.literal(1),
  /** The username in IAM. */
  name: v.string(),
  role: v.string(),
  intent: v.string(),
  createdAtMs: v.number(),
  place: locationField,
  isTagged: v.boolean(),
  /** Its lease was removed by force, without a revocation. */
  isForgotten: v.boolean(),
})

/** Users with a lease. */
export const users = new NamedRecords(ENTRY_PATHS.users, userSchema, 'a user')

/** Tags of users that a mount has created. */
export const MOUNT_TAG = 'outpost:mount'
export const INTENT_TAG = 'outpost:intent'

export function newIntent(
  username: string,
  role: string,
  nowMs: number,
  place: AccountLocation | undefined,
): UserIntent {
  const id = randomBytes(12).toString('hex')
  return { format: 1, id, kind: 'user', username, role, createdAtMs: nowMs, place, isTagged: true }
}

export function intentPath({ id }: Pick<UserIntent, 'id'>): string {
  return ENTRY_PATHS.intents + id
}

export function intentPut(intent: UserIntent) {
  return intents.put(intentPath(intent), intent)
}

export function intentOf(readEntry: ReadEntry, path: string): UserIntent | undefined {
  return intents.of(readEntry(path))
}

/** Paths of all intents of a mount. */
export function intentPaths(storage: Storage): string[] {
  return storage.list(ENTRY_PATHS.intents).map((name) => ENTRY_PATHS.intents + name)
}

export const assumedSchema = v.object({ arn: v.string(), sessionName: v.string(), externalId: v.string() })
/** The role to assume for access to a user in another account. */
export type AssumedAccount = v.InferOutput<typeof assumedSchema>

const staticSchema = v.object({
  format: v.literal(1),
  name: v.string(),
  username: v.string(),
  /** The ID in IAM, because another user may get the same name. */
  userId: v.string(),
  periodSeconds: v.number(),
  assumeRoleArn: v.string(),
  assumeRoleSessionName: v.string(),
  externalId: v.string(),
  /** The account of the user. */
  place: locationField,
  accessKey: v.string(),
  secretKey: v.string(),
  /** The previous key, if AWS still had it at the rotation. It is deleted with the role. */
  previousKey: v.optional(v.string(), ''),
  /** Time of the next rotation. */
  expiresAtMs: v.number(),
})

export type StaticRole = v.InferOutput<typeof staticSchema>

export const staticRoles = new NamedRecords(ENTRY_PATHS.staticRoles, staticSchema, 'a static role')

export function accountOf(role: Pick<StaticRole, 'assumeRoleArn' | 'assumeRoleSessionName' | 'externalId'>) {
  const { assumeRoleArn: arn, assumeRoleSessionName: sessionName, externalId } = role
  const account: AssumedAccount | null = arn === '' ? null : { arn, sessionName, externalId }
  return account
}

export function staticRoleResponse(role: StaticRole): Record<string, unknown> {
  return {
    assume_role_arn: role.assumeRoleArn,
    assume_role_session_name: role.assumeRoleSessionName,
    external_id: role.externalId,
    id: role.userId,
    name: role.name,
    rotation_period: role.periodSeconds,
    username: role.username,
  }
}
