/** Names of the groups that the users and roles of an auth method belong to: what its logins report to identity. */
import { Rejection } from './engine.ts'
import { commaList, foldedField, UNPRINTABLE } from './fields.ts'
import { foldName } from './name-fold.ts'

const GROUPS_MAX = 64
const NAME_LENGTH_MAX = 512

export const GROUPS_FIELD = {
  groups: foldedField(
    commaList('Groups that logins report: external groups with an alias of that name and this mount'),
    'case and spaces',
  ),
}

/** Each name once, whatever its case; what is not given stays. Throws a Rejection (400). */
export function changedGroups(before: readonly string[], given: readonly string[] | undefined): string[] {
  if (given === undefined) return [...before]
  const byName = new Map(given.map((name) => [foldName(name, 'case and spaces'), name.trim()]))
  byName.delete('')
  if (byName.size > GROUPS_MAX) throw new Rejection(400, `at most ${GROUPS_MAX} groups can be named`)
  const names = [...byName.values()].sort()
  if (names.some((name) => name.length > NAME_LENGTH_MAX || !name.isWellFormed() || UNPRINTABLE.test(name))) {
    throw new Rejection(400, `the name of a group has at most ${NAME_LENGTH_MAX} characters, all of them printable`)
  }
  return names
}

/** Stock clients know no such field: it is shown where it is set. */
export function shownGroups(groups: readonly string[]): { readonly groups?: readonly string[] } {
  return groups.length > 0 ? { groups } : {}
}
