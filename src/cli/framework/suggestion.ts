/**
 * "Did you mean": the known word that a mistyped one is nearest to, when it is near enough to be worth saying.
 */
import { nearestName } from '../../config/nearest-name.ts'

/** `, did you mean X?` for the word that was begun or meant, or the empty string. `prefix` is put before the suggestion. */
export function didYouMean(typed: string, known: readonly string[], prefix = ''): string {
  const begun = typed.length >= 2 ? known.find((word) => word.startsWith(typed)) : undefined
  const meant = begun ?? nearestName(typed, known)
  return meant === undefined ? '' : `, did you mean ${prefix}${meant}?`
}
