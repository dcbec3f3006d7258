/**
 * `copy/` and `move/`: copies or renames a secret, with settings and versions, in one commit. The caller must be allowed to
 * read each version and the metadata, and to create the new name. Deleted versions are copied if the caller may undelete and
 * read them. Otherwise `copy` destroys them in the copy, and `move` is denied.
 */
import { denied, type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { inPath, isObject, text } from '../../framework/fields.ts'
import { kvPath, mayReadDeleted, mayReadMetadata, mayReadNewest, mayReadVersion, settingsOf } from '../store/rights.ts'
import { isDeleted, type KeyRecord } from '../store/record.ts'
import { secretName } from '../store/names.ts'
import { SecretWriter } from '../store/secrets.ts'

/** Limit of all versions together, which are in one batch. */
const COPIED_BYTES_MAX = 32 << 20
/** Versions with data, which are all read and written in one turn. */
const COPIED_VERSIONS_MAX = 1000

interface CopyInput {
  readonly path: string
  readonly to: string | undefined
}

/**
 * Throws a Rejection (403) unless the caller may read what is copied and write the new name. Returns the deleted versions that the
 * caller may not undelete.
 */
function requireCopyRights(secrets: SecretWriter, from: KeyRecord, to: string, call: EngineCall): Set<number> {
  const newest: unknown = JSON.parse(secrets.liveData(from) ?? '{}')
  const existing = [...from.versions].filter(([, { destroyed }]) => !destroyed)
  const deleted = existing.filter(([, version]) => isDeleted(version, secrets.nowMs)).map(([number]) => number)
  const isAllowed =
    mayReadMetadata(call, from.name) &&
    existing.every(([number]) => deleted.includes(number) || mayReadVersion(call, from, number)) &&
    call.allows('create', `data/${to}`, { data: isObject(newest) ? newest : {} }) &&
    call.allows('create', `metadata/${to}`, settingsOf(from))
  if (!isAllowed) throw denied()
  return new Set(deleted.filter((number) => !mayReadDeleted(call, from, number)))
}

interface CopyResult {
  readonly secrets: SecretWriter
  readonly from: KeyRecord
  /** Deleted versions that are destroyed in the copy. */
  readonly leftOut: readonly number[]
  readonly reply: Reply
}

function copySecret(input: CopyInput, call: EngineCall): CopyResult {
  const to = secretName(input.to, 'to')
  const secrets = new SecretWriter(call)
  const from = secrets.record(input.path)
  if (!from) {
    // A caller without rights must not learn whether it exists.
    if (!mayReadNewest(call, input.path)) throw denied()
    throw new Rejection(404, 'no secret at this path')
  }
  const leftOut = requireCopyRights(secrets, from, to, call)
  if (secrets.record(to)) throw new Rejection(400, 'the destination ("to") already exists: remove it first')
  const versions = [...from.versions.values()].filter(({ destroyed }) => !destroyed).length
  if (versions > COPIED_VERSIONS_MAX) {
    const why = `the secret has ${versions} versions, at most ${COPIED_VERSIONS_MAX} can be copied`
    throw new Rejection(400, `${why}: destroy versions that are not needed`)
  }
  const bytes = secrets.copy(from, to, { bytesMax: COPIED_BYTES_MAX, leftOut })
  if (bytes > COPIED_BYTES_MAX) {
    throw new Rejection(
      400,
      `the versions have more than ${COPIED_BYTES_MAX} bytes: destroy versions that are not needed`,
    )
  }
  const data = { path: to, current_version: from.current, versions: from.versions.size }
  return { secrets, from, leftOut: [...leftOut], reply: { data } }
}

/** Adds a warning about versions that were not copied. */
function withLeftOut({ leftOut, reply }: CopyResult): Reply {
  if (leftOut.length === 0) return reply
  const why = `deleted versions that this token may not undelete are destroyed in the copy: ${leftOut.join(', ')}`
  return { ...reply, warnings: [why] }
}

const FIELDS = { path: inPath('Name of the secret'), to: text('New name') }

export const copyPaths: readonly Path[] = [
  kvPath({
    pattern: 'copy/:path+',
    summary: 'Copy a secret with its history',
    fields: FIELDS,
    update(input, call) {
      const made = copySecret(input, call)
      return { ...withLeftOut(made), batch: made.secrets.batch }
    },
  }),
  kvPath({
    pattern: 'move/:path+',
    summary: 'Rename a secret with its history',
    fields: FIELDS,
    update(input, call) {
      const { from, leftOut, reply, secrets } = copySecret(input, call)
      // The move would destroy versions that other callers may undelete.
      if (leftOut.length > 0 || !call.allows('delete', `metadata/${from.name}`)) throw denied()
      secrets.remove(from.name)
      return { ...reply, batch: secrets.batch }
    },
  }),
]
