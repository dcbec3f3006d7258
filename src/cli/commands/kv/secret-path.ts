/**
 * Where a secret is: people write `secret/app/db`, and requests need to know which part of that is the mount, and whether
 * it is a versioned store, whose data and metadata have paths of their own. The server is asked first, as the field's
 * commands do.
 */
import { tokenVariableOf } from '../../client/agent-target.ts'
import type { Answer } from '../../output/answer.ts'
import { CommandError } from '../../framework/command-shape.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { text, UsageError } from '../../framework/options.ts'
import { cleanPath, type CoreAccess, requireCore } from '../../core/core-access.ts'

export const mountOption = {
  mount: text({ placeholder: 'PATH', help: 'Mount of the store; the path is below it then', fallback: undefined }),
}

export const MISSING_PATH = 'which secret? as in: secret/app/db, or -mount=secret app/db'

export interface KvPlace {
  /** Without a slash at the end. */
  readonly mount: string
  /** Below the mount; empty for all of it. */
  readonly secret: string
  readonly isVersioned: boolean
  /** The path of requests about one side of it; in a store without versions there is one. */
  at(side: Side): string
}

/** What requests to a versioned store begin with. */
type Side =
  | 'data'
  | 'metadata'
  | 'delete'
  | 'undelete'
  | 'destroy'
  | 'watch'
  | 'diff'
  | 'export'
  | 'import'
  | 'search'
  | 'copy'
  | 'move'
  | 'transaction'

/** Throws CommandError, also where the token has no rights there. */
export async function kvPlace(core: CoreAccess, given: string, mount: string | undefined): Promise<KvPlace> {
  const asked = cleanPath(mount ?? given)
  const info = (await mountAt(core, asked)).under('data')
  const found = info.text('path').replace(/\/+$/, '')
  if (found === '') throw new CommandError(`no store of secrets is enabled at ${asked}`)
  if (!['kv', 'generic', ''].includes(info.text('type'))) {
    throw new CommandError(`${found}/ is no store of secrets but ${info.text('type')}: use "outpost read" and "write"`)
  }
  const below = mount === undefined ? asked.slice(found.length) : given
  const secret = below.split('/').filter(Boolean).length === 0 ? '' : cleanPath(below)
  const isVersioned = info.under('options').text('version') === '2'
  const at: KvPlace['at'] = (side) => [found, isVersioned ? side : '', secret].filter(Boolean).join('/')
  return { mount: found, secret, isVersioned, at }
}

async function mountAt(core: CoreAccess, asked: string): Promise<Answer> {
  try {
    return (await requireCore(core, { path: `sys/internal/ui/mounts/${asked}` })).fields
  } catch (error) {
    if (!(error instanceof RefusedByAgent) || error.status !== 403 || !error.message.includes('preflight')) throw error
    // Nobody is told which of the two it is.
    const where = `no store of secrets is at ${asked}, or the token has no right to anything in it`
    throw new CommandError(`${where}: ${tokenAdvice(core.target)}, "outpost secrets list" lists the stores`)
  }
}

function tokenAdvice(target: CoreAccess['target']): string {
  return target.token === undefined
    ? `set ${tokenVariableOf(target)}`
    : `check the path and the policies of the token from ${target.tokenFrom ?? tokenVariableOf(target)}`
}

/** The same for one secret. Throws UsageError when only the mount is named. */
export async function secretPlace(core: CoreAccess, given: string, mount: string | undefined): Promise<KvPlace> {
  const place = await kvPlace(core, given, mount)
  if (place.secret === '') throw new UsageError(`${place.mount}/ is the store itself: ${MISSING_PATH}`)
  return place
}

/** The same for what only a versioned store has. Throws CommandError. */
export async function versionedPlace(core: CoreAccess, given: string, mount: string | undefined): Promise<KvPlace> {
  return versioned(await secretPlace(core, given, mount))
}

/** The same for a folder, which may be all of the store. Throws CommandError. */
export async function versionedFolder(core: CoreAccess, given: string, mount: string | undefined): Promise<KvPlace> {
  return versioned(await kvPlace(core, given, mount))
}

function versioned(place: KvPlace): KvPlace {
  if (place.isVersioned) return place
  throw new CommandError(
    `${place.mount}/ has no versions: "outpost kv enable-versioning ${place.mount}" makes it a store that has them`,
  )
}
