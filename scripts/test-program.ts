/**
 * The program that tests start: a tree with the launcher and a bundle, like a release, built from the sources at the start of a
 * run. Loading modules one by one is half of the cost of an agent, and a run starts hundreds.
 *
 * The tree is stored under the hash of its sources, so it is never stale. Only `scripts/test.ts` passes it to tests; a file that runs
 * alone under `node --test` starts the sources themselves.
 */
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
} from 'node:fs'
import { join } from 'node:path'
import { sourcesHash, writeBundle } from './bundle.ts'

/** Trees of other sources are removed when no run has used them for this time. */
const UNUSED_MS = 24 * 3_600_000
const COMPILED_MS_MAX = 7 * UNUSED_MS

/** The launcher of such a tree. Without `mayBuild` only an existing one. */
export function bundledProgram(root: string, mayBuild: boolean): string | undefined {
  const kept = join(root, 'node_modules/.cache/outpost-bundles')
  const hash = sourcesHash(root)
  const tree = join(kept, hash.slice(0, 20))
  if (!existsSync(tree)) {
    if (!mayBuild) return undefined
    mkdirSync(kept, { recursive: true })
    removeOlder(kept, UNUSED_MS)
    build(root, kept, { tree, hash })
  }
  const now = new Date()
  utimesSync(tree, now, now)
  return join(tree, 'bin/outpost')
}

/** Built under another name until it is complete, because two runs may start at the same time. */
function build(root: string, kept: string, { tree, hash }: { tree: string; hash: string }): void {
  const made = mkdtempSync(join(kept, 'making-'))
  try {
    // Agents of other users run it, too.
    chmodSync(made, 0o755)
    writeBundle(root, join(made, 'dist'))
    if (sourcesHash(root) !== hash) throw new Error('the sources were changed during the build')
    mkdirSync(join(made, 'bin'))
    cpSync(join(root, 'bin/outpost'), join(made, 'bin/outpost'))
    cpSync(join(root, 'package.json'), join(made, 'package.json'))
    symlinkSync(join(root, 'node_modules'), join(made, 'node_modules'))
    renameSync(made, tree)
  } catch (error) {
    rmSync(made, { recursive: true, force: true })
    if (!existsSync(tree)) throw error
  }
}

/** Node caches compiled code of a bundle by its path, and never reads the cache of an old one. A missing cache is created. */
export function forgetCompiled(cache: string): void {
  if (!existsSync(cache)) return
  for (const version of readdirSync(cache)) removeOlder(join(cache, version), COMPILED_MS_MAX)
}

/** Removes entries of a directory, with their content, that were changed longer ago than `ageMs`. */
function removeOlder(directory: string, ageMs: number): void {
  if (!existsSync(directory)) return
  for (const name of readdirSync(directory)) {
    const path = join(directory, name)
    const found = statSync(path, { throwIfNoEntry: false })
    if (found && Date.now() - found.mtimeMs > ageMs) rmSync(path, { recursive: true, force: true })
  }
}
