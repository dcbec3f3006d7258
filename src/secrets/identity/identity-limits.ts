/** Limits of names, metadata, policies and members. Every error is a Rejection (400). */
import { Rejection } from '../../engines/framework/engine.ts'
import { UNPRINTABLE } from '../../engines/framework/fields.ts'
import { canonicalNames } from '../policies/policy-name.ts'

const NAME_LENGTH_MAX = 512
const METADATA_MAX = 64
const METADATA_KEY_MAX = 128
const METADATA_VALUE_MAX = 512
const POLICIES_MAX = 256
export const MEMBERS_MAX = 10_000
const SUBGROUPS_MAX = 256
export const ALIASES_MAX = 64

/** `what` is for the error: `entity`, `group`, `alias`. */
export function validateName(name: string, what: string): string {
  if (name === '') throw new Rejection(400, `missing name of the ${what}`)
  if (name.length > NAME_LENGTH_MAX)
    throw new Rejection(400, `the name of the ${what} can have at most ${NAME_LENGTH_MAX} characters`)
  if (!name.isWellFormed() || UNPRINTABLE.test(name)) {
    throw new Rejection(400, `the name of the ${what} can have printable characters only`)
  }
  return name
}

/** Undefined if nothing was given; null for empty metadata. */
export function validateMetadata(
  given: ReadonlyMap<string, string> | undefined,
): Record<string, string> | null | undefined {
  if (given === undefined) return undefined
  if (given.size > METADATA_MAX) throw new Rejection(400, `metadata can have at most ${METADATA_MAX} keys`)
  for (const [key, value] of given) {
    if (key === '' || key.length > METADATA_KEY_MAX) {
      throw new Rejection(400, `a metadata key must have 1 to ${METADATA_KEY_MAX} characters`)
    }
    if (value.length > METADATA_VALUE_MAX) {
      throw new Rejection(400, `a metadata value can have at most ${METADATA_VALUE_MAX} characters`)
    }
    if (UNPRINTABLE.test(key) || UNPRINTABLE.test(value)) {
      throw new Rejection(400, 'metadata can have printable characters only')
    }
  }
  return given.size === 0 ? null : Object.fromEntries(given)
}

export function validatePolicies(given: readonly string[] | undefined): string[] | undefined {
  if (given === undefined) return undefined
  const names = canonicalNames(given)
  if (names.includes('root')) throw new Rejection(400, 'policies cannot contain root')
  if (names.length > POLICIES_MAX) throw new Rejection(400, `at most ${POLICIES_MAX} policies can be named`)
  if (names.some((name) => name.length > NAME_LENGTH_MAX || UNPRINTABLE.test(name))) {
    throw new Rejection(400, `a policy name can have at most ${NAME_LENGTH_MAX} printable characters`)
  }
  return names
}

/** Without duplicates, in the given order. */
export function validateMembers(
  given: readonly string[] | undefined,
  kind: 'entities' | 'groups',
): string[] | undefined {
  if (given === undefined) return undefined
  const ids = [...new Set(given)]
  const max = kind === 'entities' ? MEMBERS_MAX : SUBGROUPS_MAX
  if (ids.length > max) throw new Rejection(400, `a group can have at most ${max} member ${kind}`)
  return ids
}
