/**
 * Names that an engine compares without regard to case, and their canonical form.
 *
 * A field declares its fold (`fields.ts`). The path table folds such a parameter once, before rights, audit, quotas and the
 * engine see the path, so one object has one path. Rules of policies are folded at the same segments (`FoldShape`): a rule
 * that is written in upper case holds for the canonical path, and two rules that differ only in case are one rule.
 *
 * Promises: `foldName` is idempotent, and it maps each character on its own, so the fold of a prefix is a prefix of the
 * fold. `String.prototype.toLowerCase` on a whole name breaks the second promise for a sigma at the end of a word.
 *
 * Assumes that a parameter that folds is one segment, or all that follows at the end of its pattern.
 */

/** `case`: letter case does not count. `case and spaces`: nor does white space around the name. */
export type NameFold = 'case' | 'case and spaces'

/** The canonical form of a name. */
export function foldName(name: string, fold: NameFold): string {
  return lowerCase(fold === 'case' ? name : name.trim())
}

// oxlint-disable-next-line no-control-regex -- the ASCII range begins with control characters
const ASCII = /^[\u0000-\u007f]*$/

function lowerCase(text: string): string {
  return ASCII.test(text) ? text.toLowerCase() : Array.from(text, (character) => character.toLowerCase()).join('')
}

/** A segment of a path, or all segments from there on, in which an engine folds names. */
export interface FoldedSegment {
  /** Counted from 0. */
  readonly at: number
  readonly takesRest: boolean
  readonly fold: NameFold
}

/** Which segments of a path fold. Shapes with equal keys are equal. */
export interface FoldShape {
  readonly key: string
  readonly segments: readonly FoldedSegment[]
}

/** Undefined for no segments. */
export function foldShape(segments: readonly FoldedSegment[]): FoldShape | undefined {
  if (segments.length === 0) return undefined
  return { key: segments.map(({ at, fold, takesRest }) => `${at}${takesRest ? '*' : ''} ${fold}`).join(','), segments }
}

/** The same segments in paths with `depth` more segments in front. */
export function shapeBelow({ segments }: FoldShape, depth: number): FoldShape | undefined {
  return foldShape(segments.map((segment) => ({ ...segment, at: segment.at + depth })))
}

/** A path in its canonical form. */
export function foldPath(path: string, shape: FoldShape): string {
  return folded(path, shape, foldName)
}

/** The left side of a rule, as it is compared with canonical paths of this shape. */
export function foldRulePath(path: string, shape: FoldShape): string {
  if (!path.endsWith('*')) return folded(path, shape, foldName)
  return `${folded(path.slice(0, -1), shape, foldStart)}*`
}

/** White space at the end of the text before a wildcard may stand inside of a name. */
function foldStart(text: string, fold: NameFold): string {
  return lowerCase(fold === 'case' ? text : text.trimStart())
}

function folded(path: string, { segments }: FoldShape, fold: (text: string, how: NameFold) => string): string {
  const parts = path.split('/')
  for (const { at, fold: how, takesRest } of segments) {
    const given = takesRest ? parts.slice(at).join('/') : parts[at]
    if (given === undefined || at >= parts.length) continue
    parts.splice(at, takesRest ? parts.length - at : 1, fold(given, how))
  }
  return parts.join('/')
}
