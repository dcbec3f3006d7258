/**
 * The program as tests start it: a tree with the launcher and a bundle, as it is shipped, made of the sources as they are
 * when a run begins. Half of what an agent costs is loading its modules one by one, and a run starts hundreds.
 *
 * The tree is kept under the hash of its sources, so it is never older than they are. Only `scripts/test.ts` names it to
 * tests; a file that runs alone under `node --test` starts the sources themselves.
 */
import {
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
import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import { sourcesHash, writeBundle } from './bundle.ts'

/** Trees of other sources are removed when no run has used them for so long. */
const UNUSED_MS = 24 * 3_600_000

/** The launcher of such a tree. Without `mayBuild` only one that is there already. */
export function bundledProgram(root: string, mayBuild: boolean): string | undefined {
  const kept = join(root, 'node_modules/.cache/outpost-bundles')
  const tree = join(kept, sourcesHash(root).slice(0, 20))
  if (!existsSync(tree)) {
    if (!mayBuild) return undefined
    mkdirSync(kept, { recursive: true })
    removeUnused(kept)
    build(root, kept, tree)
  }
  const now = new Date()
  utimesSync(tree, now, now)
  return join(tree, 'bin/outpost')
}

/** Under another name until it is whole: two runs may begin at once. */
function build(root: string, kept: string, tree: string): void {
  const made = mkdtempSync(join(kept, 'making-'))
  try {
    // Agents of other users run it, too.
    chmodSync(made, 0o755)
    writeBundle(root, join(made, 'dist'))
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

function removeUnused(kept: string): void {
  for (const name of readdirSync(kept)) {
    const tree = join(kept, name)
    if (Date.now() - statSync(tree).mtimeMs > UNUSED_MS) rmSync(tree, { recursive: true, force: true })
  }
}
