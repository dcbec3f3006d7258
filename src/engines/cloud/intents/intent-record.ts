/**
 * Intents: what is about to be made in AWS, noted before it is. An intent goes in the commit that stores the lease of what
 * was made, or once AWS has said that there is no such thing.
 */
import { randomBytes } from 'node:crypto'
import * as v from 'valibot'
import type { Storage } from '../../../storage/barrier/storage.ts'
import { at, Kept, Named, type Reading } from '../aws/entries.ts'
import { type Place, placeField } from '../aws/record-place.ts'

const intentSchema = v.object({
  format: v.literal(1),
  id: v.string(),
  kind: v.literal('user'),
  username: v.string(),
  role: v.string(),
  createdAtMs: v.number(),
  place: placeField,
  /** Whether the user is made with a tag that says which intent it is of. */
  isTagged: v.boolean(),
})

export type Intent = v.InferOutput<typeof intentSchema>

const intents = new Kept(intentSchema, 'an intent')

const userSchema = v.object({
  format: v.literal(1),
  /** Its name in IAM. */
  name: v.string(),
  role: v.string(),
  intent: v.string(),
  createdAtMs: v.number(),
  place: placeField,
  isTagged: v.boolean(),
  /** No lease stands for it any more: it was forgotten by force. */
  isForgotten: v.boolean(),
})

export type KnownUser = v.InferOutput<typeof userSchema>

/** Users that leases stand for. */
export const users = new Named(at.users, userSchema, 'a user')

/** Tags of a user that a mount has made. */
export const MOUNT_TAG = 'outpost:mount'
export const INTENT_TAG = 'outpost:intent'

export function newIntent(username: string, role: string, nowMs: number, place: Place | undefined): Intent {
  const id = randomBytes(12).toString('hex')
  return { format: 1, id, kind: 'user', username, role, createdAtMs: nowMs, place, isTagged: true }
}

export function intentPath({ id }: Pick<Intent, 'id'>): string {
  return at.intents + id
}

export function intentPut(intent: Intent) {
  return intents.put(intentPath(intent), intent)
}

export function intentOf(reading: Reading, path: string): Intent | undefined {
  return intents.of(reading(path))
}

/** Paths of the intents of a mount. */
export function intentPaths(storage: Storage): string[] {
  return storage.list(at.intents).map((name) => at.intents + name)
}
