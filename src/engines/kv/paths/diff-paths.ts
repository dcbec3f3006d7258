/**
 * `diff/`: the differences between two versions of a secret, optionally with values. The caller must be allowed to read both
 * versions also without values, because the names of differing members reveal something about the values.
 */
import { denied, type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { parseExact } from '../../framework/exact-json.ts'
import { boolean, inPath, integer, isObject } from '../../framework/fields.ts'
import { versionOf } from './data-paths.ts'
import { kvPath, mayReadNewest, mayReadVersion } from '../store/rights.ts'
import type { KeyRecord } from '../store/record.ts'
import {} from '../store/names.ts'

/** Limit of the characters of all keys in a response. A long name is repeated in the keys of all members below it. */
const KEYS_LENGTH_MAX = 16 << 20

interface DiffInput {
  readonly path: string
  readonly from: number
  readonly to: number
  readonly values: boolean
}

interface MemberChange {
  /** JSON Pointer (RFC 6901). */
  readonly key: string
  readonly change: 'added' | 'removed' | 'changed'
  readonly before?: unknown
  readonly after?: unknown
}

function pointer(parent: string, name: string): string {
  return `${parent}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`
}

/** Objects are compared by member, other values by their JSON text: 1.0 differs from 1. */
function* changes(before: unknown, after: unknown, at: string): Generator<MemberChange> {
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

function requireVersionRights(record: KeyRecord, version: number, _input: unknown, call: EngineCall): void {
  if (!mayReadVersion(call, record, version)) throw denied()
}

function dataAt(
  input: DiffInput,
  version: number,
  call: EngineCall,
): { readonly version: number; readonly data: unknown } {
  const found = versionOf({ path: input.path, version }, call, requireVersionRights)
  if (found && version <= 0) requireVersionRights(found.record, found.version, undefined, call)
  if (found?.text !== undefined) return { version: found.version, data: parseExact(found.text) }
  // A caller without rights must not learn whether it exists.
  if (!found && !mayReadNewest(call, input.path)) throw denied()
  throw new Rejection(
    404,
    found ? `version ${found.version} is deleted or destroyed` : `no such version of ${JSON.stringify(input.path)}`,
  )
}

function diff(input: DiffInput, call: EngineCall): Reply {
  const to = dataAt(input, input.to, call)
  const earlier = input.from === 0 ? to.version - 1 : input.from
  // The first version is compared with an empty object.
  const from = earlier === 0 ? { version: 0, data: {} } : dataAt(input, earlier, call)
  const found: object[] = []
  let length = 0
  for (const { change, key, ...values } of changes(from.data, to.data, '')) {
    length += key.length
    if (length > KEYS_LENGTH_MAX) throw new Rejection(400, 'too many differences: read both versions')
    found.push(input.values ? { key, change, ...values } : { key, change })
  }
  return { data: { from: from.version, to: to.version, changes: found } }
}

export const diffPaths: readonly Path[] = [
  kvPath({
    pattern: 'diff/:path+',
    summary: 'Compare two versions of a secret',
    fields: {
      path: inPath('Name of the secret'),
      from: integer('Earlier version; 0 for the one before `to`', { fallback: 0 }),
      to: integer('Later version; 0 for the latest', { fallback: 0 }),
      values: boolean('Include values', { fallback: false }),
    },
    read: diff,
  }),
]
