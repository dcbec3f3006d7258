/** Names of secrets that come in a body: they keep to what the path of a request would have been held to. */
import { Rejection } from '../../framework/engine.ts'

const NAME_BYTES_MAX = 4096
/** Controls, format characters, unassigned ones, and every space but the plain one. */
const UNPRINTABLE = /[^\P{C}]|[^\P{Z} ]/u

/** The name as it is kept. Throws a Rejection (400) that tells which field is wrong. */
export function secretName(given: unknown, field: string): string {
  if (typeof given !== 'string') throw new Rejection(400, `"${field}" must be the name of a secret`)
  const name = given.replaceAll(/\/{2,}/g, '/').replace(/^\//, '')
  if (name === '' || name.endsWith('/')) throw new Rejection(400, `"${field}" must name a secret, not a folder`)
  if (!name.isWellFormed() || UNPRINTABLE.test(name))
    throw new Rejection(400, `"${field}" has characters that do not print`)
  if (/(?:^|\/)\.\.?(?:\/|$)/.test(name)) throw new Rejection(400, 'relative paths not supported')
  if (Buffer.byteLength(name) > NAME_BYTES_MAX)
    throw new Rejection(400, `"${field}" has more than ${NAME_BYTES_MAX} bytes`)
  return name
}

/** What a request to one of the engine's own paths answers where its caller may not do what is inside of it. */
export function forbidden(): Rejection {
  return new Rejection(403, '1 error occurred:\n\t* permission denied\n\n')
}
