/** Secret engines and auth methods are enabled, tuned and listed alike; what is different about the two is here. */
import { cleanPath } from '../../core/core-access.ts'

export interface MountKind {
  /** First word of its commands. */
  readonly word: 'secrets' | 'auth'
  readonly one: string
  readonly many: string
  /** Below `sys/`. */
  readonly list: string
  /** In front of its path for endpoints that know both kinds. */
  readonly prefix: string
}

export const SECRETS: MountKind = {
  word: 'secrets',
  one: 'secret engine',
  many: 'secret engines',
  list: 'sys/mounts',
  prefix: '',
}
export const AUTH: MountKind = {
  word: 'auth',
  one: 'auth method',
  many: 'auth methods',
  list: 'sys/auth',
  prefix: 'auth/',
}

/** A mount's path with its slash. `auth/` in front of that of an auth method is what people often write. */
export function mountPathOf(given: string, kind: MountKind): string {
  const path = cleanPath(given)
  return `${kind.prefix !== '' && path.startsWith(kind.prefix) ? path.slice(kind.prefix.length) : path}/`
}
