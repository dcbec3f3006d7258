/** Paths of secrets: in the address of the page, and below a mount. */

/** Where the secrets of a mount are. */
export interface KvMount {
  /** With a slash at its end. */
  readonly path: string
  readonly version: 1 | 2
}

/** Folders end with a slash; the top folder is empty. */
export function isFolderName(name: string): boolean {
  return name === '' || name.endsWith('/')
}

/** The view of a secret or a folder. */
export function viewOf(mountPath: string, name: string): string {
  const mount = `/secrets/${encodeURIComponent(mountPath.replace(/\/$/, ''))}`
  return name === '' ? mount : `${mount}/${name.split('/').map(encodeURIComponent).join('/')}`
}

export function folderOf(name: string): string {
  return name.slice(0, name.replace(/\/$/, '').lastIndexOf('/') + 1)
}

export function baseName(name: string): string {
  return name.slice(folderOf(name).length)
}

/** A folder and those above it, from the top, which is empty. */
export function foldersOf(folder: string): readonly string[] {
  const ends = [...folder.matchAll(/\//g)].map(({ index }) => folder.slice(0, index + 1))
  return ['', ...ends]
}

export type KvArea = 'data' | 'metadata' | 'delete' | 'undelete' | 'destroy' | 'search' | 'watch'

/** The path of a secret for requests. A mount of version 1 has one path for everything. */
export function kvPath({ path, version }: KvMount, area: KvArea, name: string): string {
  return version === 1 ? path + name : `${path}${area}/${name}`
}

/** Why a name cannot be used for a secret; undefined if it can. */
export function nameFault(name: string): string | undefined {
  if (name === '') return 'Enter a name.'
  if (name.startsWith('/') || name.endsWith('/')) return 'A name neither starts nor ends with a slash.'
  if (name.split('/').some((part) => part === '' || part === '.' || part === '..'))
    return 'A part between slashes must not be empty, "." or "..".'
  return undefined
}

/** Without `*` a part of the name. With `*` a pattern for the whole name or, if it has no slash, for the last segment. As the server's. */
export function nameMatcher(wanted: string): (name: string) => boolean {
  const text = wanted.toLowerCase()
  if (!text.includes('*')) return (name) => name.toLowerCase().includes(text)
  return (name) => matchesGlob((text.includes('/') ? name : name.slice(name.lastIndexOf('/') + 1)).toLowerCase(), text)
}

/** `*` matches any characters. Each piece is searched once, from left to right, without backtracking. */
function matchesGlob(value: string, pattern: string): boolean {
  const [first = '', ...pieces] = pattern.split('*')
  const last = pieces.pop() ?? ''
  const end = value.length - last.length
  if (end < first.length || !value.startsWith(first) || !value.endsWith(last)) return false
  let at = first.length
  for (const piece of pieces) {
    const found = value.indexOf(piece, at)
    if (found < 0 || found + piece.length > end) return false
    at = found + piece.length
  }
  return true
}
