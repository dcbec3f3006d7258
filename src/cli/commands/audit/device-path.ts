import { cleanPath } from '../../core/core-access.ts'

/** The path of a device as the server tells it: with one slash, at its end. Throws UsageError. */
export function devicePath(given: string): string {
  return `${cleanPath(given)}/`
}
