/** From a path below a mount to the `Path` that takes it. Built once for each type of engine. */
import type { Path } from './engine.ts'

export interface PathMatch {
  readonly path: Path
  readonly params: Readonly<Record<string, string>>
}

interface Compiled {
  readonly path: Path
  readonly names: readonly string[]
  readonly pattern: RegExp
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({})

export class PathTable {
  readonly paths: readonly Path[]
  /** Patterns without a parameter: found at once. */
  readonly #exact = new Map<string, Path>()
  /** The others, by their first segment (empty where that is a parameter), in the order in which they were declared. */
  readonly #byFirst = new Map<string, Compiled[]>()

  constructor(paths: readonly Path[]) {
    this.paths = paths
    for (const each of paths) {
      if (!each.pattern.includes(':')) {
        this.#exact.set(each.pattern, each)
        continue
      }
      const [first = ''] = each.pattern.split('/')
      const key = first.startsWith(':') ? '' : first
      const compiled = this.#byFirst.get(key) ?? []
      compiled.push(compile(each))
      this.#byFirst.set(key, compiled)
    }
  }

  /** A slash at the end of `path` counts only for a pattern that takes the rest. */
  find(path: string): PathMatch | undefined {
    const trimmed = path.endsWith('/') ? path.slice(0, -1) : path
    const exact = this.#exact.get(trimmed)
    if (exact) return { path: exact, params: NO_PARAMS }
    const slash = path.indexOf('/')
    const first = slash < 0 ? path : path.slice(0, slash)
    return search(this.#byFirst.get(first), path) ?? search(this.#byFirst.get(''), path)
  }
}

function search(candidates: readonly Compiled[] | undefined, path: string): PathMatch | undefined {
  for (const { names, path: found, pattern } of candidates ?? []) {
    const match = pattern.exec(path)
    if (!match) continue
    const params: Record<string, string> = {}
    names.forEach((name, at) => (params[name] = match[at + 1] ?? ''))
    return { path: found, params }
  }
  return undefined
}

function compile(path: Path): Compiled {
  const names: string[] = []
  let source = ''
  const segments = path.pattern.split('/')
  for (const [at, segment] of segments.entries()) {
    const separator = source === '' ? '' : '/'
    if (!segment.startsWith(':')) source += separator + segment.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
    else if (segment.endsWith('*') && at === segments.length - 1) {
      names.push(segment.slice(1, -1))
      // What takes the rest takes nothing, too: then its slash may be missing.
      source += separator === '' ? '(.*)' : '(?:/(.*))?'
    } else if (/[*+]$/.test(segment)) {
      names.push(segment.slice(1, -1))
      source += `${separator}(.+)`
    } else {
      names.push(segment.slice(1))
      source += `${separator}([^/]+)`
    }
  }
  const takesRest = /[*+]$/.test(path.pattern)
  return { path, names, pattern: new RegExp(`^${source}${takesRest ? '' : '/?'}$`, 's') }
}
