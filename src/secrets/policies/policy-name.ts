/**
 * Names of policies. All spellings of a name mean one policy, so a name is put into its canonical form before any decision:
 * names in a token or role, names in a path, values that a rule compares.
 */
import { UNPRINTABLE } from '../../engines/framework/fields.ts'
import { foldName } from '../../engines/framework/name-fold.ts'

export const POLICY_NAME_LENGTH_MAX = 512
/** As a path segment, in which a character may take nine. */
const ENCODED_LENGTH_MAX = 3072

/** In lower case, without white space around it. */
export function canonicalName(name: string): string {
  return foldName(name, 'case and spaces')
}

/** Sorted, without duplicates and empty names. */
export function canonicalNames(names: readonly string[]): string[] {
  return [...new Set(names.map(canonicalName))].filter((name) => name !== '').sort()
}

/** Whether a policy can have this name. Names in a body are less restricted by their transport than names in a path. */
export function isPolicyName(name: string): boolean {
  if (name === '' || name.length > POLICY_NAME_LENGTH_MAX || !name.isWellFormed()) return false
  return !UNPRINTABLE.test(name) && encodePolicyName(name).length <= ENCODED_LENGTH_MAX
}

/** One path segment, so that a name with slashes does not become a folder. */
export function encodePolicyName(name: string): string {
  return encodeURIComponent(name)
}

/** `*` stands for any characters or none. Takes time in proportion to the lengths. */
export function matchesGlob(name: string, glob: string): boolean {
  const [first = '', ...middle] = glob.split('*')
  const last = middle.pop()
  if (last === undefined) return name === glob
  if (!name.startsWith(first)) return false
  let from = first.length
  for (const part of middle) {
    const at = name.indexOf(part, from)
    if (at < 0) return false
    from = at + part.length
  }
  return name.length - last.length >= from && name.endsWith(last)
}
