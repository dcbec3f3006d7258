/**
 * The files of a package as values: what an archive contains does not depend on the owner, the umask and the clock of the machine
 * that builds it.
 */
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'

export type TreeEntry =
  | { readonly path: string; readonly type: 'directory'; readonly mode: number }
  | { readonly path: string; readonly type: 'file'; readonly mode: number; readonly content: Buffer }
  | { readonly path: string; readonly type: 'symlink'; readonly target: string }

export const DIRECTORY_MODE = 0o755
export const PROGRAM_MODE = 0o755
export const FILE_MODE = 0o644
const EXECUTABLE_BITS = 0o111

/** A file with a text, or bytes, as content. */
export function fileEntry(path: string, content: string | Buffer, mode = FILE_MODE): TreeEntry {
  return { path, type: 'file', mode, content: typeof content === 'string' ? Buffer.from(content) : content }
}

/** Everything below `directory`, with paths below `at`. Of the modes only the executable bit is kept. */
export function readTree(directory: string, at: string): TreeEntry[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((found): TreeEntry[] => {
    const source = join(directory, found.name)
    const path = join(at, found.name)
    if (found.isDirectory()) return readTree(source, path)
    if (found.isSymbolicLink()) return [{ path, type: 'symlink', target: readlinkSync(source) }]
    if (!found.isFile()) throw new Error(`${source} is neither a file, a directory nor a symlink`)
    const isExecutable = (lstatSync(source).mode & EXECUTABLE_BITS) !== 0
    return [fileEntry(path, readFileSync(source), isExecutable ? PROGRAM_MODE : FILE_MODE)]
  })
}

/** The entries in the order of their bytes, parents first, with each parent directory that is missing. Throws for a path given twice. */
export function completeTree(entries: readonly TreeEntry[]): TreeEntry[] {
  const byPath = new Map<string, TreeEntry>()
  for (const entry of entries) {
    if (byPath.has(entry.path)) throw new Error(`${entry.path} is in the package twice`)
    byPath.set(entry.path, entry)
  }
  for (const { path } of entries) {
    const parts = path.split('/')
    for (let length = 1; length < parts.length; length++) {
      const parent = parts.slice(0, length).join('/')
      if (!byPath.has(parent)) byPath.set(parent, { path: parent, type: 'directory', mode: DIRECTORY_MODE })
    }
  }
  return [...byPath.values()].toSorted((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)))
}
