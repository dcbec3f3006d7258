/**
 * Case folding of names that an engine compares case-insensitively.
 *
 * A field declares its fold (`fields.ts`). The path table folds such a parameter once, before rights, audit, quotas and the
 * engine see the path, so one object has one path. Rules of policies are folded at the same segments (`FoldShape`): a rule
 * in upper case applies to the canonical path, and two rules that differ only in case are one rule.
 *
 * Promises. `foldName` is idempotent, and it maps each character on its own, so the fold of a prefix is a prefix of the
 * fold. `String.prototype.toLowerCase` on a whole name breaks the second promise for a sigma at the end of a word.
 *
 * Assumption. A folded parameter is one segment, or the remaining path at the end of its pattern.
 */

/** `case`: ignores case. `case and spaces`: also ignores white space around the name. */
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

/** A segment of a path, or all segments from it on, in which an engine folds names. */
export interface FoldedSegment {
  /** Counted from 0. */
  readonly at: number
  readonly takesRest: boolean
  readonly fold: NameFold
}

/** The folded segments of a path. Shapes with equal keys are equal. */
export interface FoldShape {
  readonly key: string
  readonly segments: readonly FoldedSegment[]
}

/** Undefined for no segments. */
export function foldShape(segments: readonly FoldedSegment[]): FoldShape | undefined {
  if (segments.length === 0) return undefined
  return { key: segments.map(({ at, fold, takesRest }) => `${at}${takesRest ? '*' : ''} ${fold}`).join(','), segments }
}

/** The same segments in paths with `depth` leading segments more. */
export function shapeBelow({ segments }: FoldShape, depth: number): FoldShape | undefined {
  return foldShape(segments.map((segment) => ({ ...segment, at: segment.at + depth })))
}

/** A path in its canonical form. */
export function foldPath(path: string, shape: FoldShape): string {
  return folded(path, shape, foldName)
}

/** The path of a policy rule, folded for comparison with canonical paths of this shape. */
export function foldRulePath(path: string, shape: FoldShape): string {
  if (!path.endsWith('*')) return folded(path, shape, foldName)
  return `${folded(path.slice(0, -1), shape, foldStart)}*`
}

/** Keeps white space before a wildcard, which may be inside of a name. */
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
