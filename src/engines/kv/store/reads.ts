/**
 * What an answer of each path reveals of secrets beside what the path itself names. A policy names `data/` and `metadata/`,
 * so a rule there that denies a secret, or demands a second factor, must hold for every other path that shows a part of it.
 *
 * `data`, `metadata` and `names` are of the secret or folder that the path names: the core judges them with the request
 * (`Path.reads`). A deny refuses it, a demanded code is demanded here too; a missing grant does not refuse it, because
 * policies grant `subkeys/` and `detailed-metadata/` by their own paths. `… of each` are of secrets that the answer
 * finds, or that the body names: the handler judges each (`rights.ts`, `listing.ts`).
 *
 * A path without an entry is refused at the start (`kvPath`). The table is tested as a whole in `test/engines/kv/reads.test.ts`.
 */
import { Fault } from '../../../platform/errors.ts'
import { type EngineVerb, type ImpliedRead, path, type Path, type PathDeclaration } from '../../framework/engine.ts'
import type { EngineFields } from '../../framework/fields.ts'

export type KvRead = 'data' | 'metadata' | 'names' | 'data of each' | 'metadata of each' | 'names of each'
/** By operation; `update` stands for `create` too. */
export type PathReads = Readonly<Partial<Record<Exclude<EngineVerb, 'create'>, readonly KvRead[]>>>

const JUDGED_WITH_REQUEST: ReadonlySet<KvRead> = new Set<KvRead>(['data', 'metadata', 'names'])
const NOTHING: readonly KvRead[] = []
const EACH: readonly KvRead[] = ['data of each', 'metadata of each']

/** Paths of a mount with versions. */
export const VERSIONED_READS: Readonly<Record<string, PathReads>> = {
  config: { read: NOTHING, update: NOTHING },
  // Also with `version` and `at`: the handler judges the version that is meant.
  'data/:path+': { read: NOTHING, update: NOTHING, patch: NOTHING, delete: NOTHING },
  'subkeys/:path+': { read: ['data'] },
  // A list with `exclude_deleted` depends on what is kept of each secret.
  'metadata/:path+': {
    read: NOTHING,
    update: NOTHING,
    patch: NOTHING,
    delete: NOTHING,
    list: ['metadata of each'],
    scan: ['names of each', 'metadata of each'],
  },
  metadata: {
    read: NOTHING,
    update: NOTHING,
    patch: NOTHING,
    delete: NOTHING,
    list: ['metadata of each'],
    scan: ['names of each', 'metadata of each'],
  },
  'detailed-metadata/:path*': {
    list: ['names', 'metadata of each'],
    scan: ['names', 'names of each', 'metadata of each'],
  },
  'delete/:path+': { update: NOTHING },
  'undelete/:path+': { update: NOTHING },
  'destroy/:path+': { update: NOTHING },
  transaction: { update: EACH },
  'copy/:path+': { update: ['data', 'metadata'] },
  'move/:path+': { update: ['data', 'metadata'] },
  'diff/:path+': { read: ['data'] },
  'search/:path*': { read: EACH },
  'export/:path*': { read: EACH },
  // What is unchanged is not written again, which tells that it is the same.
  'import/:path*': { update: EACH },
  'watch/:path*': { read: EACH },
  ':path*': { read: NOTHING, list: NOTHING, scan: NOTHING, update: NOTHING, patch: NOTHING, delete: NOTHING },
}

/** Paths of a mount without versions. */
export const PLAIN_READS: Readonly<Record<string, PathReads>> = {
  ':path*': { read: NOTHING, update: NOTHING, delete: NOTHING, list: NOTHING, scan: ['names of each'] },
}

/** A path with what it reads. Throws a Fault for one of which `table` does not say it. */
export function kvPath<F extends EngineFields>(declaration: PathDeclaration<F>, table = VERSIONED_READS): Path {
  const made = path(declaration)
  const reads = table[made.pattern]
  for (const verb of Object.keys(made.handlers)) {
    if (!reads || !Object.hasOwn(reads, verb === 'create' ? 'update' : verb)) {
      throw new Fault(`kv: the table of what paths read has no entry for ${verb} ${made.pattern}`)
    }
  }
  const isJudged = Object.values(reads ?? {}).some((each) => each.some((read) => JUDGED_WITH_REQUEST.has(read)))
  if (!isJudged) return made
  return { ...made, reads: (params, verb) => impliedReads(reads?.[verb === 'create' ? 'update' : verb], params, verb) }
}

function impliedReads(
  reads: readonly KvRead[] = NOTHING,
  { path: name = '' }: Readonly<Record<string, string>>,
  verb: EngineVerb,
): ImpliedRead[] {
  return reads.flatMap((each): ImpliedRead[] => {
    if (each === 'data' || each === 'metadata') return [{ operation: 'read', path: `${each}/${name}` }]
    return each === 'names' ? [{ operation: verb, path: `metadata/${name}` }] : []
  })
}
