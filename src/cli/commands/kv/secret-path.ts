/**
 * Resolves the path of a secret, such as `secret/app/db`, to its mount and its path below the mount. A versioned mount has separate API
 * paths for data and metadata, so the version of the mount is queried first, as `vault kv` does.
 */
import { tokenVariableOf } from '../../client/agent-target.ts'
import type { JsonFields } from '../../output/json.ts'
import { CommandError } from '../../framework/define-command.ts'
import { AgentRefusal } from '../../client/http-client.ts'
import { integer, text, UsageError } from '../../framework/options.ts'
import { cleanPath, type CoreAccess, requireResponse } from '../../core/core-access.ts'

export const mountOption = {
  mount: text({ placeholder: 'PATH', help: 'Mount path; PATH is relative to it', fallback: undefined }),
}

export const pathOperand = {
  shown: 'PATH',
  min: 1,
  max: 1,
  hint: 'such as secret/app/db, or app/db with -mount=secret',
}

export const casOption = {
  cas: integer({
    placeholder: 'N',
    help: 'Write only if N is the current version',
    fallback: -1,
    shownDefault: 'no check; with 0 the secret must not exist',
    min: -1,
    max: Number.MAX_SAFE_INTEGER,
  }),
}

export interface KvPath {
  /** Without trailing slash. */
  readonly mount: string
  /** Path below the mount; empty for the whole mount. */
  readonly secret: string
  readonly isVersioned: boolean
  /** The API path for an endpoint of a versioned mount; a mount without versions has one path. */
  at(endpoint: KvEndpoint): string
}

/** First segment of the API paths of a versioned mount. */
type KvEndpoint =
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

/** Throws CommandError, also without permission below the mount. */
export async function resolveKvPath(core: CoreAccess, given: string, mount: string | undefined): Promise<KvPath> {
  const path = cleanPath(mount ?? given)
  const info = (await mountInfo(core, path)).under('data')
  const mountPath = info.text('path').replace(/\/+$/, '')
  if (mountPath === '') throw new CommandError(`no KV engine is enabled at ${path}, check "outpost secrets list"`)
  if (!['kv', 'generic', ''].includes(info.text('type'))) {
    throw new CommandError(
      `${mountPath}/ is a mount of type ${info.text('type')}, not kv: use "outpost read" and "outpost write"`,
    )
  }
  const below = mount === undefined ? path.slice(mountPath.length) : given
  const secret = below.split('/').filter(Boolean).length === 0 ? '' : cleanPath(below)
  const isVersioned = info.under('options').text('version') === '2'
  const at: KvPath['at'] = (endpoint) => [mountPath, isVersioned ? endpoint : '', secret].filter(Boolean).join('/')
  return { mount: mountPath, secret, isVersioned, at }
}

async function mountInfo(core: CoreAccess, path: string): Promise<JsonFields> {
  try {
    return (await requireResponse(core, { path: `sys/internal/ui/mounts/${path}` })).fields
  } catch (error) {
    if (!(error instanceof AgentRefusal) || error.status !== 403 || !error.message.includes('preflight')) throw error
    // The server does not distinguish the two causes.
    throw new CommandError(
      `no KV engine at ${path}, or the token has no permission below it: ${tokenAdvice(core.target)}; "outpost secrets list" lists the mounts`,
    )
  }
}

/** For one secret. Throws UsageError for a mount path. */
export async function resolveSecretPath(core: CoreAccess, given: string, mount: string | undefined): Promise<KvPath> {
  const path = await resolveKvPath(core, given, mount)
  if (path.secret === '') throw new UsageError(`${path.mount}/ is a mount path: specify the path of a secret below it`)
  return path
}

/** For a secret of a versioned mount. Throws CommandError. */
export async function resolveVersionedPath(
  core: CoreAccess,
  given: string,
  mount: string | undefined,
): Promise<KvPath> {
  return requireVersions(await resolveSecretPath(core, given, mount))
}

/** For a folder of a versioned mount, or the mount itself. Throws CommandError. */
export async function resolveVersionedFolder(
  core: CoreAccess,
  given: string,
  mount: string | undefined,
): Promise<KvPath> {
  return requireVersions(await resolveKvPath(core, given, mount))
}

function requireVersions(path: KvPath): KvPath {
  if (path.isVersioned) return path
  throw new CommandError(
    `${path.mount}/ is not versioned: enable versions with "outpost kv enable-versioning ${path.mount}"`,
  )
}

function tokenAdvice(target: CoreAccess['target']): string {
  return target.token === undefined
    ? `set ${tokenVariableOf(target)}`
    : `check the path and the policies of the token from ${target.tokenFrom ?? tokenVariableOf(target)}`
}
