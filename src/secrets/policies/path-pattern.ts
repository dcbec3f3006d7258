/**
 * Patterns of path rules: matching and precedence.
 *
 * `exact` has no wildcard. `prefix` ends in `*` and has no `+`: it matches any rest, including none. `segments` has a `+` at the start of a
 * segment; a segment `+` matches any one segment, and a trailing `*` any rest. Any other `*` or `+` is a literal character.
 */

export interface PathPattern {
  readonly kind: 'exact' | 'prefix' | 'segments'
  /** As in the rule, with templates filled in. */
  readonly text: string
  /** Everything before the first wildcard: the prefix of all matching paths. */
  readonly head: string
  /** The text without a trailing `*`. */
  readonly body: string
  /** Whether the text ends in `*`. */
  readonly open: boolean
  /** The segments of `body`; empty unless `kind` is `segments`. */
  readonly segments: readonly string[]
  /** Number of `+` segments. */
  readonly pluses: number
}

export function compilePattern(text: string): PathPattern {
  const open = text.endsWith('*')
  const body = open ? text.slice(0, -1) : text
  if (text === '+' || text.startsWith('+/') || text.includes('/+')) {
    const segments = body.split('/')
    const head = text.slice(0, text.indexOf('+'))
    return {
      kind: 'segments',
      text,
      head,
      body,
      open,
      segments,
      pluses: segments.filter((each) => each === '+').length,
    }
  }
  return { kind: open ? 'prefix' : 'exact', text, head: body, body, open, segments: [], pluses: 0 }
}

/** A path that is split into segments when they are first used. */
export class SplitPath {
  readonly text: string
  #segments: readonly string[] | undefined

  constructor(text: string) {
    this.text = text
  }

  get segments(): readonly string[] {
    this.#segments ??= this.text.split('/')
    return this.#segments
  }
}

export function matchesPath(pattern: PathPattern, path: SplitPath): boolean {
  if (pattern.kind === 'exact') return path.text === pattern.body
  if (!path.text.startsWith(pattern.head)) return false
  return pattern.kind === 'prefix' || matchesSegments(pattern, path.segments)
}

function matchesSegments({ segments, open }: PathPattern, path: readonly string[]): boolean {
  if (open ? path.length < segments.length : path.length !== segments.length) return false
  const last = segments.length - 1
  for (let i = 0; i <= last; i++) {
    const wanted = segments[i] ?? ''
    const given = path[i] ?? ''
    if (wanted !== '+' && wanted !== given && !(open && i === last && given.startsWith(wanted))) return false
  }
  return true
}

/** Whether the pattern can match a path below `mount`, which ends with a slash. */
export function reachesBelow(pattern: PathPattern, mount: string): boolean {
  if (pattern.kind !== 'segments') return pattern.body.startsWith(mount)
  const { segments, open } = pattern
  const wanted = mount.slice(0, -1).split('/')
  for (const [i, given] of wanted.entries()) {
    const segment = segments[i]
    if (segment === undefined) return false
    if (open && i === segments.length - 1) return given.startsWith(segment)
    if (segment !== '+' && segment !== given) return false
  }
  return open || segments.length > wanted.length
}

/**
 * Compares wildcard patterns by precedence, highest first: later first wildcard, no trailing `*`, fewer `+`, longer, then larger in byte
 * order. Zero for equal patterns only.
 */
export function closestFirst(a: PathPattern, b: PathPattern): number {
  return (
    byteLength(b.head) - byteLength(a.head) ||
    Number(a.open) - Number(b.open) ||
    a.pluses - b.pluses ||
    byteLength(b.body) - byteLength(a.body) ||
    Buffer.compare(Buffer.from(b.body), Buffer.from(a.body))
  )
}

function byteLength(text: string): number {
  return Buffer.byteLength(text)
}
