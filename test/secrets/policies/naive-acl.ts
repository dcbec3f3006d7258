/**
 * Which path rule decides, in the slowest and plainest way: every pattern as a regular expression, every pair compared,
 * sentence by sentence as the language's description has it. What the compiled rules are compared with.
 */

function wildcardAt(pattern: string): number {
  const plus = isSegments(pattern) ? pattern.indexOf('+') : -1
  return plus >= 0 ? plus : pattern.length - 1
}

function isSegments(pattern: string): boolean {
  return /^\+$|^\+\/|\/\+/.test(pattern)
}

function isWildcard(pattern: string): boolean {
  return isSegments(pattern) || pattern.endsWith('*')
}

/** The expression of each pattern: tests ask for the same patterns with many paths. */
const expressions = new Map<string, RegExp>()

function expressionOf(pattern: string): RegExp {
  const known = expressions.get(pattern)
  if (known) return known
  const open = pattern.endsWith('*')
  const body = open ? pattern.slice(0, -1) : pattern
  const segments = body.split('/').map((segment) => {
    if (segment === '+' && isSegments(pattern)) return '[^/]*'
    return segment.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)
  })
  const expression = new RegExp(`^${segments.join('/')}${open ? '[^]*' : ''}$`)
  expressions.set(pattern, expression)
  return expression
}

function matches(pattern: string, path: string): boolean {
  return expressionOf(pattern).test(path)
}

function pluses(pattern: string): number {
  if (!isSegments(pattern)) return 0
  const segments = pattern.replace(/\*$/, '').split('/')
  return segments.filter((segment) => segment === '+').length
}

/** Whether P1 loses against P2: the first difference decides. */
function loses(p1: string, p2: string): boolean {
  const [at1, at2] = [wildcardAt(p1), wildcardAt(p2)]
  if (at1 !== at2) return at1 < at2
  const [open1, open2] = [p1.endsWith('*'), p2.endsWith('*')]
  if (open1 !== open2) return open1
  if (pluses(p1) !== pluses(p2)) return pluses(p1) > pluses(p2)
  if (p1.length !== p2.length) return p1.length < p2.length
  return p1 < p2
}

function best(patterns: readonly string[], path: string): string | undefined {
  const matching = patterns.filter((pattern) => isWildcard(pattern) && matches(pattern, path))
  return matching.find((one) => matching.every((other) => other === one || loses(other, one)))
}

/** The pattern that decides about a path; `listing` for list and scan, whose path has its slash at the end. */
export function decidingPattern(patterns: readonly string[], path: string, listing: boolean): string | undefined {
  const exact = patterns.filter((pattern) => !isWildcard(pattern))
  const bare = path.endsWith('/') ? path.slice(0, -1) : path
  if (exact.includes(path)) return path
  if (listing && exact.includes(bare)) return bare
  return best(patterns, path) ?? (listing ? best(patterns, bare) : undefined)
}
