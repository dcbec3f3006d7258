/**
 * `diff/`: what is different between two versions of a secret, with their values where the caller asks for them. Either
 * way the caller must be allowed to read both versions: which members differ tells of their values too.
 */
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { parseExact } from '../../framework/exact-json.ts'
import { boolean, inPath, integer, isObject } from '../../framework/fields.ts'
import { versionOf } from './data-paths.ts'
import { kvPath } from '../store/reads.ts'
import type { KeyRecord } from '../store/record.ts'
import { mayReadNewest, mayReadVersion } from '../store/rights.ts'
import { forbidden } from '../store/secret-name.ts'

/** Characters of all names that an answer tells: a long name counts with each member that is below it. */
const KEYS_LENGTH_MAX = 16 << 20

interface Input {
  readonly path: string
  readonly from: number
  readonly to: number
  readonly values: boolean
}

interface Change {
  /** Names of members on the way to it (JSON Pointer, RFC 6901). */
  readonly key: string
  readonly change: 'added' | 'removed' | 'changed'
  readonly before?: unknown
  readonly after?: unknown
}

function pointer(parent: string, name: string): string {
  return `${parent}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`
}

/** Objects are compared member by member; everything else as a whole, by its JSON: 1.0 is not what 1 is. */
function* changes(before: unknown, after: unknown, at: string): Generator<Change> {
  if (!isObject(before) || !isObject(after)) {
    if (JSON.stringify(before) !== JSON.stringify(after)) yield { key: at, change: 'changed', before, after }
    return
  }
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const key = pointer(at, name)
    if (!Object.hasOwn(after, name)) yield { key, change: 'removed', before: before[name] }
    else if (!Object.hasOwn(before, name)) yield { key, change: 'added', after: after[name] }
    else yield* changes(before[name], after[name], key)
  }
}

function demandVersion(record: KeyRecord, version: number, _question: unknown, call: EngineCall): void {
  if (!mayReadVersion(call, record, version)) throw forbidden()
}

function dataAt(input: Input, version: number, call: EngineCall): { readonly version: number; readonly data: unknown } {
  const found = versionOf({ path: input.path, version }, call, demandVersion)
  if (found && version <= 0) demandVersion(found.record, found.version, undefined, call)
  if (found?.text !== undefined) return { version: found.version, data: parseExact(found.text) }
  // A caller who may not read it is not told whether it is there.
  if (!found && !mayReadNewest(call, input.path)) throw forbidden()
  throw new Rejection(404, found ? `version ${found.version} is deleted or destroyed` : 'there is no such version')
}

function diff(input: Input, call: EngineCall): Reply {
  const to = dataAt(input, input.to, call)
  const earlier = input.from === 0 ? to.version - 1 : input.from
  // Before the first version there was nothing.
  const from = earlier === 0 ? { version: 0, data: {} } : dataAt(input, earlier, call)
  const found: object[] = []
  let length = 0
  for (const { change, key, ...values } of changes(from.data, to.data, '')) {
    length += key.length
    if (length > KEYS_LENGTH_MAX) throw new Rejection(400, 'too much is different to be told: read both versions')
    found.push(input.values ? { key, change, ...values } : { key, change })
  }
  return { data: { from: from.version, to: to.version, changes: found } }
}

export const diffPaths: readonly Path[] = [
  kvPath({
    pattern: 'diff/:path+',
    summary: 'Which members two versions of a secret have in different ways',
    fields: {
      path: inPath('Name of the secret'),
      from: integer('The earlier version; 0 for the one before the other', { fallback: 0 }),
      to: integer('The later version; 0 for the newest', { fallback: 0 }),
      values: boolean('Also tells the values', { fallback: false }),
    },
    read: diff,
  }),
]
