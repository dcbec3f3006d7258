/**
 * Removes names from lists that the caller cannot access: `list_scan_response_keys_filter_path` of a path rule.
 *
 * The filter is a template of a path from the path of the list and one name, `{{ .path }}{{ .key }}`. Each can be transformed:
 * `{{ .path | replace "kv/metadata/" "kv/data/" }}`. A name stays in the list if the caller may read the resulting path or, for the name
 * of a folder, list it.
 */
import type { SlicedWork } from '../../platform/sliced-work.ts'

interface Placeholder {
  readonly variable: 'path' | 'key'
  readonly replacements: readonly (readonly [string, string])[]
}

export type KeyFilter = readonly (string | Placeholder)[]

const PLACEHOLDER = /^\s*\.(path|key)\s*((?:\|\s*replace\s+"[^"]*"\s+"[^"]*"\s*)*)$/
const REPLACEMENT = /\|\s*replace\s+"([^"]*)"\s+"([^"]*)"/g

/** Undefined for a malformed template. */
export function parseKeyFilter(text: string): KeyFilter | undefined {
  const [first = '', ...rest] = text.split('{{')
  if (first.includes('}}')) return undefined
  const pieces: (string | Placeholder)[] = [first]
  for (const piece of rest) {
    const [inner = '', after, more] = piece.split('}}')
    const [, variable, replacements = ''] = PLACEHOLDER.exec(inner) ?? []
    if (after === undefined || more !== undefined || (variable !== 'path' && variable !== 'key')) return undefined
    const pairs = [...replacements.matchAll(REPLACEMENT)].map(([, from = '', to = '']) => [from, to] as const)
    if (pairs.some(([from, to]) => from === '' || to.length > REPLACEMENT_LENGTH_MAX)) return undefined
    pieces.push({ variable, replacements: pairs }, after)
  }
  return pieces.some((piece) => typeof piece !== 'string' && piece.variable === 'key') ? pieces : undefined
}

/** Longer than any request's path. Bounds the growth by replacements. */
const PATH_LENGTH_MAX = 8192
const REPLACEMENT_LENGTH_MAX = 512

/** The path that decides about one name of a list; undefined if it is too long. */
export function filteredPath(filter: KeyFilter, path: string, key: string): string | undefined {
  let filtered = ''
  for (const piece of filter) {
    let text = typeof piece === 'string' ? piece : piece.variable === 'path' ? path : key
    for (const [from, to] of typeof piece === 'string' ? [] : piece.replacements) {
      text = text.replaceAll(from, () => to)
      if (text.length > PATH_LENGTH_MAX) return undefined
    }
    filtered += text
    if (filtered.length > PATH_LENGTH_MAX) return undefined
  }
  return filtered
}

/** Cost of one decision, in units of `RECORD_COST`. */
const DECISION_COST = 2

/** The data of a list with the kept names only. Other members are removed, because they could contain removed names. */
export function* withoutKeys(
  data: Readonly<Record<string, unknown>>,
  keeps: (key: string) => boolean,
): SlicedWork<Record<string, unknown>> {
  const keys: string[] = []
  const all: readonly unknown[] = Array.isArray(data['keys']) ? data['keys'] : []
  for (const key of all) {
    if (typeof key === 'string' && keeps(key)) keys.push(key)
    yield DECISION_COST
  }
  const infos = data['key_info']
  if (typeof infos !== 'object' || infos === null) return { keys }
  const kept = new Set<string>(keys)
  return { keys, key_info: Object.fromEntries(Object.entries(infos).filter(([key]) => kept.has(key))) }
}
