/**
 * Lists without the names that the caller could not use: `list_scan_response_keys_filter_path` of a path rule.
 *
 * It is a template with the path of the list and one name, `{{ .path }}{{ .key }}`; each may be changed on its way,
 * `{{ .path | replace "kv/metadata/" "kv/data/" }}`. A name stays in the list when the caller may read the path that comes
 * out, or list it where the name is a folder's.
 */
import type { SlicedWork } from '../../platform/sliced-work.ts'

interface Insertion {
  readonly of: 'path' | 'key'
  readonly replacements: readonly (readonly [string, string])[]
}

export type KeyFilter = readonly (string | Insertion)[]

const INSERTION = /^\s*\.(path|key)\s*((?:\|\s*replace\s+"[^"]*"\s+"[^"]*"\s*)*)$/
const REPLACEMENT = /\|\s*replace\s+"([^"]*)"\s+"([^"]*)"/g

/** The template, or undefined for a text that is none. */
export function parseKeyFilter(text: string): KeyFilter | undefined {
  const [first = '', ...rest] = text.split('{{')
  if (first.includes('}}')) return undefined
  const pieces: (string | Insertion)[] = [first]
  for (const piece of rest) {
    const [inner = '', after, more] = piece.split('}}')
    const [, of, replacements = ''] = INSERTION.exec(inner) ?? []
    if (after === undefined || more !== undefined || (of !== 'path' && of !== 'key')) return undefined
    const pairs = [...replacements.matchAll(REPLACEMENT)].map(([, from = '', to = '']) => [from, to] as const)
    if (pairs.some(([from, to]) => from === '' || to.length > REPLACED_MAX)) return undefined
    pieces.push({ of, replacements: pairs }, after)
  }
  return pieces.some((piece) => typeof piece !== 'string' && piece.of === 'key') ? pieces : undefined
}

/** Longer than any path that is asked for: whoever has replacements grow it on purpose gets no further. */
const PATH_MAX = 8192
const REPLACED_MAX = 512

/** The path whose rules decide about one name of a list; undefined when it would be longer than any. */
export function filteredPath(filter: KeyFilter, path: string, key: string): string | undefined {
  let whole = ''
  for (const piece of filter) {
    let text = typeof piece === 'string' ? piece : piece.of === 'path' ? path : key
    for (const [from, to] of typeof piece === 'string' ? [] : piece.replacements) {
      text = text.replaceAll(from, () => to)
      if (text.length > PATH_MAX) return undefined
    }
    whole += text
    if (whole.length > PATH_MAX) return undefined
  }
  return whole
}

/** Of asking policies about one name. */
const ASKED_COST = 2

/** What is left of a list's data; members beside the names might name what is left out, and go. */
export function* withoutKeys(
  data: Readonly<Record<string, unknown>>,
  keeps: (key: string) => boolean,
): SlicedWork<Record<string, unknown>> {
  const keys: string[] = []
  const all: readonly unknown[] = Array.isArray(data['keys']) ? data['keys'] : []
  for (const key of all) {
    if (typeof key === 'string' && keeps(key)) keys.push(key)
    yield ASKED_COST
  }
  const infos = data['key_info']
  if (typeof infos !== 'object' || infos === null) return { keys }
  const kept = new Set<string>(keys)
  return { keys, key_info: Object.fromEntries(Object.entries(infos).filter(([key]) => kept.has(key))) }
}
