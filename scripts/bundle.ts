/**
 * The program in a few files of JavaScript instead of some 800 modules: an agent is ready with half of the CPU. Commands
 * and everything else that the sources load late stay files of their own and are loaded late as well; so do the threads.
 *
 * Two modules stay outside and are found in `node_modules` at run time: a native one that may be missing, and one that is
 * loaded by a `require` of our own, late and in one go (`host/line-pattern`).
 *
 *     npm run build          writes dist/, which `bin/outpost` runs where there are no sources
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'

const ROOT = resolve(import.meta.dirname, '..')
/** Files of their own that the program starts as threads; the bundler sees only a URL. */
const WORKER_URL = /new URL\('\.\/([\w-]+)\.ts', import\.meta\.url\)/g
const OUTSIDE = ['msgpackr-extract', 're2js']
/** Modules of npm that are not ES modules ask for Node's own by `require`, which an ES module does not have. */
const REQUIRE =
  "import { createRequire as createRequireOfBundle } from 'node:module'; const require = createRequireOfBundle(import.meta.url)"

function sourcesIn(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted()
}

/** A hash of all that a bundle is made of: sources, dependencies by their lock, the launcher and this file. */
export function sourcesHash(root: string): string {
  const hash = createHash('sha256')
  const others = ['package.json', 'package-lock.json', 'bin/outpost', 'scripts/bundle.ts'].map((name) =>
    join(root, name),
  )
  for (const file of [...sourcesIn(join(root, 'src')), ...others]) {
    const content = readFileSync(file)
    hash.update(`${file.slice(root.length)}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex')
}

/** Writes `main.js` and what it loads into `directory`, flat, so that a thread's file is always beside who starts it. */
export async function writeBundle(root: string, directory: string): Promise<void> {
  const { build } = await import('esbuild')
  const sources = sourcesIn(join(root, 'src'))
  const threads = sources.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(WORKER_URL)].map(([, name]) => name),
  )
  const entries = sources.filter((file) => ['main', ...threads].includes(basename(file, '.ts')))
  if (entries.length !== new Set(threads).size + 1) throw new Error('two files of src/ have the name of one thread')
  await build({
    entryPoints: entries.map((file) => ({ in: file, out: basename(file, '.ts') })),
    outdir: directory,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    external: OUTSIDE,
    legalComments: 'linked',
    logLevel: 'error',
    banner: { js: REQUIRE },
    plugins: [
      {
        name: 'threads',
        setup: (building) =>
          building.onLoad({ filter: /\/src\/.*\.ts$/ }, async ({ path }) => ({
            loader: 'ts',
            contents: (await readFile(path, 'utf8')).replaceAll(WORKER_URL, "new URL('./$1.js', import.meta.url)"),
          })),
      },
    ],
  })
}

if (import.meta.main) {
  const directory = join(ROOT, 'dist')
  rmSync(directory, { recursive: true, force: true })
  await writeBundle(ROOT, directory)
}
