/**
 * The canonical form of a path: names that the engine at the path folds are folded (`name-fold.ts`). Rights, audit,
 * quotas and the engine see this form only. A path that no engine declares is its own canonical form.
 */
import type { Fields } from './fields.ts'
import { type FoldShape, shapeBelow } from './name-fold.ts'
import type { PathMatch, PathTable } from './path-table.ts'

export interface CanonicalPath {
  readonly path: string
  /** Which of its segments fold; undefined for none. */
  readonly folds?: FoldShape | undefined
  /** What the path declares, where it declares names that fold. */
  readonly fields?: Fields | undefined
}

/** Finds the canonical form of a path. */
export type Canonical = (path: string) => CanonicalPath

/** A mount, and what follows its path. */
interface MountedPath {
  readonly mount: { readonly paths: PathTable }
  readonly rest: string
}

/** The path of a match below a mount; `path` is the whole path. */
export function canonicalOf(path: string, place: MountedPath, match: PathMatch): CanonicalPath {
  const { fields } = match.path
  if (!match.folds) return { path, fields }
  const front = path.slice(0, path.length - place.rest.length)
  return { path: front + match.rest, folds: shapeBelow(match.folds, front.split('/').length - 1), fields }
}

/** The same for a path that is not the request's own. */
export function canonicalAt(path: string, place: MountedPath | undefined): CanonicalPath {
  if (!place?.mount.paths.hasFolds) return { path }
  const match = place.mount.paths.find(place.rest)
  return match ? canonicalOf(path, place, match) : { path }
}
