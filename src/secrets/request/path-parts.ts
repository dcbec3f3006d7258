/**
 * Divides a path into the words that the core or an engine declares and the names that the caller chose, for the access log,
 * which shows the former and hides the latter.
 */
import type { Path } from '../../engines/framework/engine.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'
import type { PathPart } from '../../platform/operation.ts'
import type { Core } from './request-states.ts'

/** The parts of a canonical path; undefined if no endpoint declares the path. */
export function pathParts(core: Pick<Core, 'find'>, path: string): readonly PathPart[] | undefined {
  const resolved = core.find(path)
  if (!resolved) return undefined
  const { mount, rest } = resolved
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

/** A segment of a path's pattern: a declared word, or the name of a field. */
type PatternSegment = PathPart | string

const segmentsByPath = new WeakMap<Path, readonly PatternSegment[]>()

/** Cached per path, because every line of the access log needs them. */
function segmentsOf(path: Path): readonly PatternSegment[] {
  let segments = segmentsByPath.get(path)
  if (!segments) {
    segments = path.pattern.split('/').map((segment): PatternSegment => {
      return segment.startsWith(':') ? segment.replace(/^:|[*+]$/g, '') : { text: segment, isName: false }
    })
    segmentsByPath.set(path, segments)
  }
  return segments
}

function nameIn({ params, path }: { params: Readonly<Record<string, string>>; path: Path }, field: string): PathPart {
  return { text: params[field] ?? '', isName: true, isSecret: path.fields[field]?.isSecret === true }
}

/**
 * The index in a canonical path behind its mount and the longest prefix of declared words. The rest may be a token, because
 * clients of old versions of Vault put tokens into paths. Undefined for a path that an endpoint declares.
 */
export function undeclaredFrom(resolved: ResolvedPath | undefined, path: string): number | undefined {
  if (!resolved) return path === '' ? undefined : 0
  const { mount, rest } = resolved
  if (rest === '' || mount.paths.find(rest)) return undefined
  const given = rest.split('/')
  const declared = mount.paths.paths.map(({ pattern }) => commonPrefixLength(pattern.split('/'), given))
  const words = given.slice(0, Math.max(0, ...declared))
  return Math.min(path.length, path.length - rest.length + words.reduce((length, word) => length + word.length + 1, 0))
}

/** The number of leading words that both have. A parameter of the pattern equals no word. */
function commonPrefixLength(pattern: readonly string[], given: readonly string[]): number {
  const other = given.findIndex((word, at) => word !== pattern[at])
  return other < 0 ? given.length : other
}

/** The parts on a server without a core, which knows no mounts: the path is one name, or undefined if it may have a token. */
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
