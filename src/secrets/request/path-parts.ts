/**
 * What of a path the core or an engine declares, and what of it a caller has put in: for the access log, which shows the
 * one and hides the other.
 */
import type { Path } from '../../engines/framework/engine.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'
import type { PathPart } from '../../platform/operation.ts'
import type { Core } from './request-states.ts'

/** The parts of a canonical path; undefined for one that no endpoint declares. */
export function pathParts(core: Pick<Core, 'find'>, path: string): readonly PathPart[] | undefined {
  const place = core.find(path)
  if (!place) return undefined
  const { mount, rest } = place
  const own: PathPart = { text: mount.record.path.replace(/\/$/, ''), isName: false }
  const match = mount.paths.find(rest)
  if (!match) return rest === '' ? [own] : undefined
  const parts = [own]
  for (const segment of segmentsOf(match.path)) {
    const part = typeof segment === 'string' ? nameIn(match, segment) : segment
    if (part.text !== '') parts.push(part)
  }
  return parts
}

/** Of a path's pattern: a word that it declares, or the field whose value stands there. */
type Segment = PathPart | string

const known = new WeakMap<Path, readonly Segment[]>()

/** The same for each request for the path: every line of the access log asks for them. */
function segmentsOf(path: Path): readonly Segment[] {
  let segments = known.get(path)
  if (!segments) {
    segments = path.pattern.split('/').map((segment): Segment => {
      return segment.startsWith(':') ? segment.replace(/^:|[*+]$/g, '') : { text: segment, isName: false }
    })
    known.set(path, segments)
  }
  return segments
}

function nameIn({ params, path }: { params: Readonly<Record<string, string>>; path: Path }, field: string): PathPart {
  return { text: params[field] ?? '', isName: true, isSecret: path.fields[field]?.isSecret === true }
}

/**
 * Where what no endpoint declares begins in a canonical path: behind its mount and the words that a path of the mount begins with, too.
 * Clients of old put tokens there. Undefined for a path that an endpoint declares.
 */
export function undeclaredFrom(place: ResolvedPath | undefined, path: string): number | undefined {
  if (!place) return path === '' ? undefined : 0
  const { mount, rest } = place
  if (rest === '' || mount.paths.find(rest)) return undefined
  const given = rest.split('/')
  const declared = mount.paths.paths.map(({ pattern }) => wordsInCommon(pattern.split('/'), given))
  const words = given.slice(0, Math.max(0, ...declared))
  return Math.min(path.length, path.length - rest.length + words.reduce((length, word) => length + word.length + 1, 0))
}

/** A parameter has no word of its own. */
function wordsInCommon(pattern: readonly string[], given: readonly string[]): number {
  const other = given.findIndex((word, at) => word !== pattern[at])
  return other < 0 ? given.length : other
}

/** The same on a server that asks another one, which knows no mounts: a name as a whole, or none where a token may be in it. */
export function relayedParts(path: string): readonly PathPart[] | undefined {
  let text = path
  for (let left = 8; left > 0 && /%[\da-f]{2}/i.test(text); left--) {
    try {
      text = decodeURIComponent(text)
    } catch {
      return undefined
    }
  }
  return /(?:^|\/)(?:auth\/token|wrapping)\//i.test(text) || /%[\da-f]{2}/i.test(text)
    ? undefined
    : [{ text: path, isName: true }]
}
