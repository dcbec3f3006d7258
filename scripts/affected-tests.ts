/**
 * Test files that a change can affect, according to the imports of the code: a quick first result during development,
 * not a replacement for the whole suite. A test that starts the program (`bin/outpost`) depends on all of it; such a
 * test is chosen only if its file or its imports have changed.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'

/** Relative files that a source names: imports of any form, workers, and programs that a test starts. */
const NAMED =
  /(?:\bfrom|\bimport|new URL|\b(?:join|resolve)\(import\.meta\.dirname,)\s*\(?\s*'(\.[^']*\.ts|[\w./-]+\.ts)'/g

/** Absolute paths of the files that differ from `since`, including untracked ones. */
function changedFiles(root: string, since: string): Set<string> {
  const lines = (args: readonly string[]) =>
    execFileSync('git', ['-C', root, ...args], { encoding: 'utf8' })
      .split('\n')
      .filter((line) => line !== '')
  const names = [...lines(['diff', '--name-only', since]), ...lines(['ls-files', '-o', '--exclude-standard'])]
  return new Set(names.map((name) => join(root, name)))
}

/** The `files` that differ from the revision `since`, or that import such a file directly or indirectly. */
export function affectedTests(root: string, files: readonly string[], since: string): string[] {
  const changed = changedFiles(root, since)
  const known = new Map<string, boolean>()
  const isAffected = (file: string): boolean => {
    const before = known.get(file)
    if (before !== undefined) return before
    known.set(file, changed.has(file)) // ends a cycle
    const affected = changed.has(file) || filesNamedIn(file).some(isAffected)
    known.set(file, affected)
    return affected
  }
  return files.filter(isAffected)
}

function filesNamedIn(file: string): string[] {
  if (!existsSync(file)) return []
  const text = readFileSync(file, 'utf8')
  return [...text.matchAll(NAMED)]
    .map(([, name]) => resolve(dirname(file), name ?? ''))
    .filter((path) => existsSync(path))
}
