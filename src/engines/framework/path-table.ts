/**
 * Routing below a mount: finds the declaration (`Path`) for a path, and the canonical form of that path. A table is built once
 * for each list of paths.
 *
 * A parameter whose field declares a fold (`name-fold.ts`) is folded here and nowhere else: the parameters and the path of
 * a match are canonical. Rights, audit, quotas and the engine see this form only. A path that no engine declares is its own
 * canonical form. A pattern that folds a parameter of several segments before its end is an error at start-up.
 */
import type { Path } from './engine.ts'
import type { EngineFields } from './fields.ts'
import {
  type FoldedSegment,
  foldName,
  foldPath,
  type FoldShape,
  foldShape,
  type NameFold,
  shapeBelow,
} from './name-fold.ts'

export interface PathMatch {
  readonly path: Path
  readonly params: Readonly<Record<string, string>>
  /** The canonical path below the mount. */
  readonly rest: string
  /** The folded segments of `rest`; undefined for none. */
  readonly folds: FoldShape | undefined
}

interface PatternParameter {
  readonly name: string
  readonly fold: NameFold | undefined
}

interface CompiledPattern {
  readonly path: Path
  readonly parameters: readonly PatternParameter[]
  readonly pattern: RegExp
  readonly folds: FoldShape | undefined
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({})

export class PathTable {
  readonly paths: readonly Path[]
  /** Whether a path or a field of the table folds a name. */
  readonly hasFolds: boolean
  /** Patterns without parameters. */
  readonly #exact = new Map<string, Path>()
  /** Other patterns in declaration order, by their first segment: empty if that is a parameter. */
  readonly #byFirst = new Map<string, CompiledPattern[]>()

  constructor(paths: readonly Path[]) {
    this.paths = paths
    let hasFolds = false
    for (const each of paths) {
      hasFolds ||= Object.values(each.fields).some(({ fold }) => fold !== undefined)
      if (!each.pattern.includes(':')) {
        this.#exact.set(each.pattern, each)
        continue
      }
      const [first = ''] = each.pattern.split('/')
      const key = first.startsWith(':') ? '' : first
      const others = this.#byFirst.get(key) ?? []
      others.push(compile(each))
      this.#byFirst.set(key, others)
    }
    this.hasFolds = hasFolds
  }

  /** A trailing slash of `path` is significant only for a pattern that matches the remaining path. */
  find(path: string): PathMatch | undefined {
    const trimmed = path.endsWith('/') ? path.slice(0, -1) : path
    const exact = this.#exact.get(trimmed)
    if (exact) return { path: exact, params: NO_PARAMS, rest: path, folds: undefined }
    const slash = path.indexOf('/')
    const first = slash < 0 ? path : path.slice(0, slash)
    return search(this.#byFirst.get(first), path) ?? search(this.#byFirst.get(''), path)
  }
}

function search(candidates: readonly CompiledPattern[] | undefined, path: string): PathMatch | undefined {
  for (const { folds, parameters, path: declared, pattern } of candidates ?? []) {
    const match = pattern.exec(path)
    if (!match) continue
    const params: Record<string, string> = {}
    for (const [at, { fold, name }] of parameters.entries()) {
      const given = match[at + 1] ?? ''
      params[name] = fold ? foldName(given, fold) : given
      // A name of white space only is invalid: its canonical path would match another declaration.
      if (fold && given !== '' && /^(?:\/|$)/.test(params[name])) return undefined
    }
    return { path: declared, params, rest: folds ? foldPath(path, folds) : path, folds }
  }
  return undefined
}

function compile(path: Path): CompiledPattern {
  const parameters: PatternParameter[] = []
  const folded: FoldedSegment[] = []
  let source = ''
  const segments = path.pattern.split('/')
  const last = segments.length - 1
  let isCounted = true
  for (const [at, segment] of segments.entries()) {
    const separator = source === '' ? '' : '/'
    if (!segment.startsWith(':')) {
      source += separator + segment.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
      continue
    }
    const takesMore = /[*+]$/.test(segment)
    const name = segment.replace(/^:|[*+]$/g, '')
    const fold = path.fields[name]?.fold
    if (fold && (!isCounted || (takesMore && at < last))) {
      throw new Error(`path ${path.pattern}: a parameter that folds is one segment, or all that follows at the end`)
    }
    if (fold) folded.push({ at, takesRest: takesMore, fold })
    parameters.push({ name, fold })
    if (takesMore) isCounted = false
    if (segment.endsWith('*') && at === last) {
      // An empty remaining path may lack its slash.
      source += separator === '' ? '(.*)' : '(?:/(.*))?'
    } else source += `${separator}${takesMore ? '(.+)' : '([^/]+)'}`
  }
  const takesRest = /[*+]$/.test(path.pattern)
  const pattern = new RegExp(`^${source}${takesRest ? '' : '/?'}$`, 's')
  return { path, parameters, pattern, folds: foldShape(folded) }
}

export interface CanonicalPath {
  readonly path: string
  /** Its folded segments; undefined for none. */
  readonly folds?: FoldShape | undefined
  /** The declared fields, if the path declares names that fold. */
  readonly fields?: EngineFields | undefined
}

/** Finds the canonical form of a path. */
export type Canonical = (path: string) => CanonicalPath

/** A mount, and the remaining path below it. */
interface MountedPath {
  readonly mount: { readonly paths: PathTable }
  readonly rest: string
}

/** Canonical form of the whole path of a match below a mount. */
export function canonicalOf(path: string, mounted: MountedPath, match: PathMatch): CanonicalPath {
  const { fields } = match.path
  if (!match.folds) return { path, fields }
  const front = path.slice(0, path.length - mounted.rest.length)
  return { path: front + match.rest, folds: shapeBelow(match.folds, front.split('/').length - 1), fields }
}

/** Canonical form of a path other than that of the request. */
export function canonicalAt(path: string, mounted: MountedPath | undefined): CanonicalPath {
  if (!mounted?.mount.paths.hasFolds) return { path }
  const match = mounted.mount.paths.find(mounted.rest)
  return match ? canonicalOf(path, mounted, match) : { path }
}
