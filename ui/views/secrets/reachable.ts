/**
 * The names in a folder that the policies of the token contain. A token with one folder of a mount may not list the folders above it; its
 * policies name the way.
 */
import { type KvArea, type KvMount, kvPath } from './secret-path.ts'

interface Rules {
  readonly [path: string]: { readonly capabilities: readonly string[] }
}

/** From `sys/internal/ui/resultant-acl`, in the format of Vault. */
export interface ResultantAcl {
  readonly root: boolean
  readonly exact_paths?: Rules
  /** Prefixes without their `*`; paths with `+` as they are in the policy. */
  readonly glob_paths?: Rules
}

export interface Reachable {
  /** Folders end with a slash. */
  readonly names: readonly string[]
  /** Paths in policies that allow several names in the folder. */
  readonly patterns: readonly string[]
}

interface PathRule {
  readonly segments: readonly string[]
  /** The last segment matches any rest. */
  readonly isOpen: boolean
  readonly text: string
  readonly capabilities: readonly string[]
}

function rulesOf({ exact_paths: exact = {}, glob_paths: glob = {} }: ResultantAcl): readonly PathRule[] {
  const all = [
    ...Object.entries(exact).map(([path, rule]) => ({ body: path, text: path, isOpen: false, ...rule })),
    ...Object.entries(glob).map(([path, rule]) => globOf(path, rule)),
  ]
  return all
    .filter(({ capabilities }) => !capabilities.includes('deny'))
    .map(({ body, ...rule }) => ({ ...rule, segments: body.split('/') }))
}

function globOf(path: string, rule: Rules[string]) {
  const hasAnySegment = path.startsWith('+/') || path.includes('/+')
  if (!hasAnySegment) return { body: path, text: `${path}*`, isOpen: true, ...rule }
  const isOpen = path.endsWith('*')
  return { body: isOpen ? path.slice(0, -1) : path, text: path, isOpen, ...rule }
}

/** What a rule allows in a folder: a name, several (true), or nothing. `folder` has the segments of the path, with those of the mount. */
function nameIn({ isOpen, segments }: PathRule, folder: readonly string[]): string | true | undefined {
  const last = segments.length - 1
  for (const [index, segment] of folder.entries()) {
    const own = segments[index]
    if (own === undefined) return undefined
    if (isOpen && index === last) return segment.startsWith(own) ? true : undefined
    if (own !== '+' && own !== segment) return undefined
  }
  const next = segments[folder.length]
  if (next === undefined) return undefined
  if (next === '+' || (isOpen && folder.length === last)) return true
  if (next === '') return undefined
  return folder.length === last ? next : `${next}/`
}

const AREAS: readonly KvArea[] = ['metadata', 'data']

/** A rule for a path without a slash at its end may be about a folder, a secret, or both. */
function kindsOf(name: string, area: KvArea, { version }: KvMount, capabilities: readonly string[]): readonly string[] {
  if (name.endsWith('/')) return [name]
  const isFolder = capabilities.includes('list') && (version === 1 || area === 'metadata')
  const isSecret = version === 1 ? capabilities.some((each) => each !== 'list') : area === 'data' || !isFolder
  return [...(isFolder ? [`${name}/`] : []), ...(isSecret ? [name] : [])]
}

export function reachableIn(acl: ResultantAcl, mount: KvMount, folder: string): Reachable {
  const names = new Set<string>()
  const patterns = new Set<string>()
  const rules = rulesOf(acl)
  for (const area of mount.version === 1 ? AREAS.slice(1) : AREAS) {
    const path = kvPath(mount, area, folder).split('/').slice(0, -1)
    for (const rule of rules) {
      const name = nameIn(rule, path)
      if (name === true) patterns.add(rule.text)
      else if (name !== undefined) for (const each of kindsOf(name, area, mount, rule.capabilities)) names.add(each)
    }
  }
  return { names: [...names].toSorted(), patterns: [...patterns].toSorted() }
}
