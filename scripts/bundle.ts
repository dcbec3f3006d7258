/**
 * The program in a few files of JavaScript instead of some 800 modules: an agent is ready with half of the CPU. Commands
 * and everything else that the sources load late stay files of their own and are loaded late as well; so do the threads.
 *
 * Some modules stay outside and are found in `node_modules` at run time: a native one that may be missing, one that is
 * loaded by a `require` of our own, late and in one go (`host/line-pattern`), and all that the sources import late: of a
 * CommonJS module that is bundled, `import()` gives the default export alone, and its names are gone.
 *
 *     npm run build          writes dist/, which `bin/outpost` runs where there are no sources
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'

const ROOT = resolve(import.meta.dirname, '..')
/** Starts a thread, whose file is one of its own: in the sources and in what the bundler makes of them. It sees only a URL. */
const THREAD_URL = /new URL\(['"]\.\/([\w-]+)\.ts['"], import\.meta\.url\)/g
const OUTSIDE = ['msgpackr-extract', 're2js']
/** A module of npm that is imported late. */
const LATE_IMPORT = /\bimport\('([^.'][^']*)'\)/g
/** Modules of npm that are not ES modules ask for Node's own by `require`, which an ES module does not have. */
const REQUIRE = "const require = process.getBuiltinModule('node:module').createRequire(import.meta.url)"
/** What the bundler writes of an import of a module of Node: its names, or one name for all of it. */
const BUILTIN_IMPORT = /^import (?:(\w[\w$]*)(?:, )?)?(?:\{([^}]*)\}|\* as (\w[\w$]*))? ?from "(node:[\w/]+)";\n/gm

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
export function writeBundle(root: string, directory: string): void {
  const sources = sourcesIn(join(root, 'src'))
  const threads = sources.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(THREAD_URL)].map(([, name]) => name),
  )
  const entries = sources.filter((file) => ['main', ...threads].includes(basename(file, '.ts')))
  if (entries.length !== new Set(threads).size + 1) throw new Error('two files of src/ have the name of one thread')
  // By its command line: who has installed the program's own dependencies only can check types without it.
  const options = ['--bundle', '--splitting', '--format=esm', '--platform=node', '--target=node24', '--log-level=error']
  const late = sources.flatMap((file) => [...readFileSync(file, 'utf8').matchAll(LATE_IMPORT)].map(([, name]) => name))
  const outside = [...new Set([...OUTSIDE, ...late])].map((name) => `--external:${name}`)
  const output = [`--outdir=${directory}`, `--banner:js=${REQUIRE}`, '--legal-comments=linked']
  const inputs = entries.map((file) => `${basename(file, '.ts')}=${file}`)
  execFileSync(join(root, 'node_modules/.bin/esbuild'), [...options, ...outside, ...output, ...inputs])
  for (const name of readdirSync(directory)) {
    const file = join(directory, name)
    const text = readFileSync(file, 'utf8')
    const changed = withoutFacades(text.replaceAll(THREAD_URL, "new URL('./$1.js', import.meta.url)"))
    if (changed !== text) writeFileSync(file, changed)
  }
}

/**
 * Takes Node's own modules as they are. An `import` makes a module of exports around each of them, and so evaluates all that
 * they would load late (WebCrypto, decoders): 0.04 s of CPU for each process. They come first, as imports would.
 */
function withoutFacades(text: string): string {
  const taken: string[] = []
  const rest = text.replaceAll(BUILTIN_IMPORT, (_, whole?: string, names?: string, all?: string, module?: string) => {
    const from = `process.getBuiltinModule(${JSON.stringify(module)})`
    for (const name of [whole, all]) if (name) taken.push(`const ${name} = ${from};`)
    if (names) taken.push(`const {${names.replaceAll(' as ', ': ')}} = ${from};`)
    return ''
  })
  if (/^import .*from "node:/m.test(rest))
    throw new Error('the bundler writes an import in a form that is unknown here')
  return taken.length === 0 ? rest : `${taken.join('\n')}\n${rest}`
}

if (import.meta.main) {
  const directory = join(ROOT, 'dist')
  rmSync(directory, { recursive: true, force: true })
  writeBundle(ROOT, directory)
}
