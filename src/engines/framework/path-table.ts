/**
 * Finds the declaration (`Path`) that takes a path below a mount, and the canonical form of that path. Built once for each
 * list of paths.
 *
 * A parameter whose field declares a fold (`name-fold.ts`) is folded here and nowhere else: the parameters and the path of
 * a match are canonical. A pattern that folds a parameter of several segments before its end is refused at the start.
 */
import type { Path } from './engine.ts'
import { type FoldedSegment, foldName, foldPath, type FoldShape, foldShape, type NameFold } from './name-fold.ts'

export interface PathMatch {
  readonly path: Path
  readonly params: Readonly<Record<string, string>>
  /** The canonical path below the mount: the one that was looked for, with names folded where `folds` says. */
  readonly rest: string
  /** Which segments of `rest` fold; undefined for none. */
  readonly folds: FoldShape | undefined
}

interface Parameter {
  readonly name: string
  readonly fold: NameFold | undefined
}

interface Compiled {
  readonly path: Path
  readonly parameters: readonly Parameter[]
  readonly pattern: RegExp
  readonly folds: FoldShape | undefined
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({})

export class PathTable {
  readonly paths: readonly Path[]
  /** Whether some path of the table folds a name, of the path or of its fields. */
  readonly hasFolds: boolean
  /** Patterns without a parameter: found at once. */
  readonly #exact = new Map<string, Path>()
  /** The others, by their first segment (empty where that is a parameter), in the order in which they were declared. */
  readonly #byFirst = new Map<string, Compiled[]>()

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

  /** A slash at the end of `path` counts only for a pattern that takes the rest. */
  find(path: string): PathMatch | undefined {
    const trimmed = path.endsWith('/') ? path.slice(0, -1) : path
    const exact = this.#exact.get(trimmed)
    if (exact) return { path: exact, params: NO_PARAMS, rest: path, folds: undefined }
    const slash = path.indexOf('/')
    const first = slash < 0 ? path : path.slice(0, slash)
    return search(this.#byFirst.get(first), path) ?? search(this.#byFirst.get(''), path)
  }
}

function search(candidates: readonly Compiled[] | undefined, path: string): PathMatch | undefined {
  for (const { folds, parameters, path: found, pattern } of candidates ?? []) {
    const match = pattern.exec(path)
    if (!match) continue
    const params: Record<string, string> = {}
    for (const [at, { fold, name }] of parameters.entries()) {
      const given = match[at + 1] ?? ''
      params[name] = fold ? foldName(given, fold) : given
      // A name of white space alone is none: its canonical path would be that of another declaration.
      if (fold && given !== '' && /^(?:\/|$)/.test(params[name])) return undefined
    }
    return { path: found, params, rest: folds ? foldPath(path, folds) : path, folds }
  }
  return undefined
}

function compile(path: Path): Compiled {
  const parameters: Parameter[] = []
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
      // What takes the rest takes nothing, too: then its slash may be missing.
      source += separator === '' ? '(.*)' : '(?:/(.*))?'
    } else source += `${separator}${takesMore ? '(.+)' : '([^/]+)'}`
  }
  const takesRest = /[*+]$/.test(path.pattern)
  const pattern = new RegExp(`^${source}${takesRest ? '' : '/?'}$`, 's')
  return { path, parameters, pattern, folds: foldShape(folded) }
}
