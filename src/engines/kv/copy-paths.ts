/** `copy/` and `move/`: a secret under another name, with its settings and all of its versions, in one step. */
import { type EngineCall, path, type Path, Rejection, type Reply } from '../engine.ts'
import { inPath, isObject, text } from '../fields.ts'
import type { KeyRecord } from './record.ts'
import { forbidden, secretName } from './secret-name.ts'
import { ChangingSecrets } from './secrets.ts'

/** Of all versions together: one batch holds them. */
const COPIED_BYTES_MAX = 32 << 20
/** Versions with data: each is read and written anew, all of them in one turn. */
const COPIED_VERSIONS_MAX = 1000

interface Input {
  readonly path: string
  readonly to: string | undefined
}

/** Whoever may read all of the one and write all of the other could do it by hand. */
function demandCopy(secrets: ChangingSecrets, from: KeyRecord, to: string, { allows }: EngineCall): void {
  const newest: unknown = JSON.parse(secrets.liveData(from) ?? '{}')
  const written = { data: isObject(newest) ? newest : {}, options: {} }
  const isAllowed =
    allows('read', `data/${from.name}`) &&
    allows('read', `metadata/${from.name}`) &&
    allows('create', `data/${to}`, written) &&
    allows('create', `metadata/${to}`)
  if (!isAllowed) throw forbidden()
}

function copied(input: Input, call: EngineCall): { secrets: ChangingSecrets; from: KeyRecord; reply: Reply } {
  const to = secretName(input.to, 'to')
  const secrets = new ChangingSecrets(call)
  const from = secrets.record(input.path)
  if (!from) {
    // Who may not read it is not told whether it is there.
    if (!call.allows('read', `data/${input.path}`)) throw forbidden()
    throw new Rejection(404, 'there is no secret at this path')
  }
  demandCopy(secrets, from, to, call)
  if (secrets.record(to)) throw new Rejection(400, `there is a secret at "to" already: remove it first`)
  const versions = [...from.versions.values()].filter(({ destroyed }) => !destroyed).length
  if (versions > COPIED_VERSIONS_MAX) {
    const why = `it has ${versions} versions and a copy at most ${COPIED_VERSIONS_MAX}`
    throw new Rejection(400, `${why}: destroy those that are not needed`)
  }
  const bytes = secrets.copy(from, to, COPIED_BYTES_MAX)
  if (bytes > COPIED_BYTES_MAX) {
    throw new Rejection(
      400,
      `its versions have more than ${COPIED_BYTES_MAX} bytes together: destroy those that are not needed`,
    )
  }
  return { secrets, from, reply: { data: { path: to, current_version: from.current, versions: from.versions.size } } }
}

const FIELDS = { path: inPath('Name of the secret'), to: text('The name that it is to have') }

export const copyPaths: readonly Path[] = [
  path({
    pattern: 'copy/:path+',
    summary: 'Copies a secret with its history',
    fields: FIELDS,
    update(input, call) {
      const { reply, secrets } = copied(input, call)
      return { ...reply, batch: secrets.batch }
    },
  }),
  path({
    pattern: 'move/:path+',
    summary: 'Gives a secret another name, with its history',
    fields: FIELDS,
    update(input, call) {
      const { from, reply, secrets } = copied(input, call)
      if (!call.allows('delete', `metadata/${from.name}`)) throw forbidden()
      secrets.remove(from.name)
      return { ...reply, batch: secrets.batch }
    },
  }),
]
