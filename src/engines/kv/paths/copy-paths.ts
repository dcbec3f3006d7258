/**
 * `copy/` and `move/`: a secret under another name, with its settings and its versions, in one step. The caller must be
 * allowed to read each version and the metadata, and to create the other name. Deleted versions are copied for a caller
 * who may undelete and read them; for another caller `copy` marks them as destroyed, and `move` is refused.
 */
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { inPath, isObject, text } from '../../framework/fields.ts'
import { kvPath } from '../store/reads.ts'
import { isDeleted, type KeyRecord } from '../store/record.ts'
import { mayReadDeleted, mayReadMetadata, mayReadNewest, mayReadVersion, settingsOf } from '../store/rights.ts'
import { forbidden, secretName } from '../store/secret-name.ts'
import { ChangingSecrets } from '../store/secrets.ts'

/** Of all versions together: one batch holds them. */
const COPIED_BYTES_MAX = 32 << 20
/** Versions with data: each is read and written anew, all of them in one turn. */
const COPIED_VERSIONS_MAX = 1000

interface Input {
  readonly path: string
  readonly to: string | undefined
}

/**
 * Throws (403) unless the caller may read what is copied and write it under the other name. Returns the deleted versions
 * that the caller may not bring back.
 */
function demandCopy(secrets: ChangingSecrets, from: KeyRecord, to: string, call: EngineCall): Set<number> {
  const newest: unknown = JSON.parse(secrets.liveData(from) ?? '{}')
  const kept = [...from.versions].filter(([, { destroyed }]) => !destroyed)
  const deleted = kept.filter(([, version]) => isDeleted(version, secrets.nowMs)).map(([number]) => number)
  const isAllowed =
    mayReadMetadata(call, from.name) &&
    kept.every(([number]) => deleted.includes(number) || mayReadVersion(call, from, number)) &&
    call.allows('create', `data/${to}`, { data: isObject(newest) ? newest : {} }) &&
    call.allows('create', `metadata/${to}`, settingsOf(from))
  if (!isAllowed) throw forbidden()
  return new Set(deleted.filter((number) => !mayReadDeleted(call, from, number)))
}

interface Copied {
  readonly secrets: ChangingSecrets
  readonly from: KeyRecord
  /** Deleted versions of which the copy has no data. */
  readonly leftOut: readonly number[]
  readonly reply: Reply
}

function copied(input: Input, call: EngineCall): Copied {
  const to = secretName(input.to, 'to')
  const secrets = new ChangingSecrets(call)
  const from = secrets.record(input.path)
  if (!from) {
    // Who may not read it is not told whether it is there.
    if (!mayReadNewest(call, input.path)) throw forbidden()
    throw new Rejection(404, 'there is no secret at this path')
  }
  const leftOut = demandCopy(secrets, from, to, call)
  if (secrets.record(to)) throw new Rejection(400, `there is a secret at "to" already: remove it first`)
  const versions = [...from.versions.values()].filter(({ destroyed }) => !destroyed).length
  if (versions > COPIED_VERSIONS_MAX) {
    const why = `it has ${versions} versions and a copy at most ${COPIED_VERSIONS_MAX}`
    throw new Rejection(400, `${why}: destroy those that are not needed`)
  }
  const bytes = secrets.copy(from, to, { bytesMax: COPIED_BYTES_MAX, leftOut })
  if (bytes > COPIED_BYTES_MAX) {
    throw new Rejection(
      400,
      `its versions have more than ${COPIED_BYTES_MAX} bytes together: destroy those that are not needed`,
    )
  }
  const data = { path: to, current_version: from.current, versions: from.versions.size }
  return { secrets, from, leftOut: [...leftOut], reply: { data } }
}

/** The reply of a copy that has less than its source says what it lacks. */
function withLeftOut({ leftOut, reply }: Copied): Reply {
  if (leftOut.length === 0) return reply
  const why = `deleted versions that this token may not undelete are destroyed in the copy: ${leftOut.join(', ')}`
  return { ...reply, warnings: [why] }
}

const FIELDS = { path: inPath('Name of the secret'), to: text('The name that it is to have') }

export const copyPaths: readonly Path[] = [
  kvPath({
    pattern: 'copy/:path+',
    summary: 'Copies a secret with its history',
    fields: FIELDS,
    update(input, call) {
      const made = copied(input, call)
      return { ...withLeftOut(made), batch: made.secrets.batch }
    },
  }),
  kvPath({
    pattern: 'move/:path+',
    summary: 'Gives a secret another name, with its history',
    fields: FIELDS,
    update(input, call) {
      const { from, leftOut, reply, secrets } = copied(input, call)
      // Without them the move would destroy what somebody else may still bring back.
      if (leftOut.length > 0 || !call.allows('delete', `metadata/${from.name}`)) throw forbidden()
      secrets.remove(from.name)
      return { ...reply, batch: secrets.batch }
    },
  }),
]
