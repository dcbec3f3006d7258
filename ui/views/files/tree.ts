/** Directories that are opened in place: the rows of a listing and of the listings below it, each level in one order. */
import type { HostFsLs } from '../../api/types.ts'

export type Entry = HostFsLs[number]

export interface TreeRow extends Entry {
  /** Names from the directory of the view, with its own. */
  readonly below: readonly string[]
  readonly isOpen: boolean
  /** Why its entries are not shown. */
  readonly error: string | undefined
}

/** The entries of an opened directory; undefined while they are read. */
export interface OpenDirectory {
  readonly entries?: readonly Entry[]
  readonly error?: string
}

/** Opened directories by their path below the directory of the view. */
export type OpenDirectories = ReadonlyMap<string, OpenDirectory>

export function keyOf(below: readonly string[]): string {
  return below.join('/')
}

export type Compare = (one: Entry, other: Entry) => number

/** Directories are before files, unless `compare` gives an order. `search` in lower case selects entries of the view's own directory. */
export function treeRows(
  entries: readonly Entry[],
  open: OpenDirectories,
  { compare, search = '' }: { readonly compare?: Compare | undefined; readonly search?: string } = {},
): readonly TreeRow[] {
  const found = search === '' ? entries : entries.filter(({ Name }) => Name.toLowerCase().includes(search))
  const rows: TreeRow[] = []
  addRows(rows, found, [])
  return rows

  function addRows(to: TreeRow[], level: readonly Entry[], parents: readonly string[]): void {
    for (const entry of ordered(level, compare)) {
      const below = [...parents, entry.Name]
      const directory = entry.IsDir ? open.get(keyOf(below)) : undefined
      to.push({ ...entry, below, isOpen: directory !== undefined, error: directory?.error })
      if (directory?.entries) addRows(to, directory.entries, below)
    }
  }
}

/** The host has sorted the names. */
function ordered(entries: readonly Entry[], compare: Compare | undefined): readonly Entry[] {
  if (compare) return entries.toSorted(compare)
  return [...entries.filter(({ IsDir }) => IsDir), ...entries.filter(({ IsDir }) => !IsDir)]
}

/** Without a directory and those below it. */
export function closed(open: OpenDirectories, below: readonly string[]): OpenDirectories {
  const key = keyOf(below)
  return new Map([...open].filter(([path]) => path !== key && !path.startsWith(`${key}/`)))
}
