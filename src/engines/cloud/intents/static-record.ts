/** A static role of a mount, as it is kept: a user of IAM that was there before, and the key that is given out. */
import * as v from 'valibot'
import { at, Named } from '../aws/entries.ts'
import { placeField } from '../aws/record-place.ts'

export const assumedSchema = v.object({ arn: v.string(), sessionName: v.string(), externalId: v.string() })
/** The role in another account by which a user there is reached. */
export type AssumedAccount = v.InferOutput<typeof assumedSchema>

const staticSchema = v.object({
  format: v.literal(1),
  name: v.string(),
  username: v.string(),
  /** Its ID in IAM: another user may get the same name. */
  userId: v.string(),
  periodSeconds: v.number(),
  assumeRoleArn: v.string(),
  assumeRoleSessionName: v.string(),
  externalId: v.string(),
  /** Where its user is. */
  place: placeField,
  accessKey: v.string(),
  secretKey: v.string(),
  /** The key that was given out before, where AWS still had it when the role got this one. It ends with the role. */
  previousKey: v.optional(v.string(), ''),
  /** The next rotation. */
  expiresAtMs: v.number(),
})

export type StaticRole = v.InferOutput<typeof staticSchema>

export const staticRoles = new Named(at.staticRoles, staticSchema, 'a static role')

export function accountOf(role: Pick<StaticRole, 'assumeRoleArn' | 'assumeRoleSessionName' | 'externalId'>) {
  const { assumeRoleArn: arn, assumeRoleSessionName: sessionName, externalId } = role
  const account: AssumedAccount | null = arn === '' ? null : { arn, sessionName, externalId }
  return account
}

export function shownStatic(role: StaticRole): Record<string, unknown> {
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
