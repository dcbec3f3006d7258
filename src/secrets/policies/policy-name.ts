/**
 * The canonical form of policy names. A name has one policy in all of its spellings, so every name is put into this form
 * before anything is judged by it: names that a token or role asks for, names in a path, values that a rule compares.
 */

import { foldName } from '../../engines/framework/name-fold.ts'

/** Without white space around it and in lower case. */
export function canonicalName(name: string): string {
  return foldName(name, 'case and spaces')
}

/** In order, each once, without empty ones. */
export function canonicalNames(names: readonly string[]): string[] {
  return [...new Set(names.map(canonicalName))].filter((name) => name !== '').sort()
}
