/**
 * The program in a few files of JavaScript instead of some 800 modules: an agent is ready with half of the CPU. Commands
 * and everything else that the sources load late stay files of their own and are loaded late as well; so do the threads.
 *
 * The bundler puts what some hundred commands share with an agent and with each other into some eighty small chunks, and
 * each file that Node loads costs half a millisecond. So an agent has a bundle of its own beside that of the commands, `agent.js`, and a thread is one file.
 *
 * Some modules stay outside and are found in `node_modules` at run time: a native one that may be missing, one that is
 * loaded by a `require` of our own, late and in one go (`host/logs/search/line-pattern`), and all that the sources import late: of a
 * CommonJS module that is bundled, `import()` gives the default export alone, and its names are gone.
 *
 *     npm run build          writes dist/, which `bin/outpost` runs where there are no sources
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { basename, join, parse, resolve } from 'node:path'

const ROOT = resolve(import.meta.dirname, '..')
/** Starts a thread, whose file is one of its own: in the sources and in what the bundler makes of them. It sees only a URL. */
const THREAD_URL = /new URL\(['"]\.\/([\w-]+)\.ts['"], import\.meta\.url\)/g
/** What `main.js` loads late and every agent needs to read its command line. */
const AGENT_BEGINS = ['agent', 'version']
/** What an agent loads late, too. */
const AGENT_GOES_ON = 'agent-process'
/** The bundler's import of what is loaded late. */
const CHUNK_IMPORT = /\bimport\("(\.\/([\w-]+)-\w+\.js)"\)/g
/** The accelerator of MessagePack being asked for. */
const EXTRACTOR = /\b(\w+)\("msgpackr-extract"\)/g
const OUTSIDE = ['msgpackr-extract', 're2js']
/** What `npm run dist` writes beside the bundle. */
const PACKAGES = 'packages'
/** Writes the web interface. */
const UI_BUNDLER = 'scripts/ui-bundle.ts'
/** Digits of a commit that are shown. */
const COMMIT_DIGITS = 12
/** A module of npm that is imported late. */
const LATE_IMPORT = /\bimport\('([^.'][^']*)'\)/g
// oxlint-disable-next-line no-control-regex
const NOT_ASCII = /[^\0-\x7f]/g
/** Modules of npm that are not ES modules ask for Node's own by `require`, which an ES module does not have. */
const REQUIRE = "const require = process.getBuiltinModule('node:module').createRequire(import.meta.url)"
/** What the bundler writes of an import of a module of Node: its names, or one name for all of it. */
const BUILTIN_IMPORT = /^import (?:(\w[\w$]*)(?:, )?)?(?:\{([^}]*)\}|\* as (\w[\w$]*))? ?from "((?:node:)?[\w/]+)";\n/gm

function sourcesIn(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted()
}

function uiSourcesIn(root: string): string[] {
  return readdirSync(join(root, 'ui'), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted()
}

/** A hash of all that a bundle is made of: sources, dependencies by their lock, the launcher and this file. */
export function sourcesHash(root: string): string {
  const hash = createHash('sha256')
  const others = ['package.json', 'package-lock.json', 'bin/outpost', 'scripts/bundle.ts', UI_BUNDLER].map((name) =>
    join(root, name),
  )
  for (const file of [...sourcesIn(join(root, 'src')), ...uiSourcesIn(root), ...others]) {
    const content = readFileSync(file)
    hash.update(`${file.slice(root.length)}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex')
}

/** The packages that stay outside of a bundle. */
export function outsidePackages(root: string): readonly string[] {
  const late = sourcesIn(join(root, 'src')).flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(LATE_IMPORT)].map(([, name = '']) => name),
  )
  return [...new Set([...OUTSIDE, ...late])]
}

/** Writes `main.js`, `agent.js` and what they load into `directory`, flat, so that a thread's file is always beside who starts it. */
export function writeBundle(root: string, directory: string): void {
  const sources = sourcesIn(join(root, 'src'))
  const threads = sources.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(THREAD_URL)].map(([, name = '']) => name),
  )
  const entries = (names: readonly string[]) => sources.filter((file) => names.includes(basename(file, '.ts')))
  if (entries(threads).length !== new Set(threads).size)
    throw new Error('two files of src/ have the name of one thread')
  const run = bundlerOf(root, directory, outsidePackages(root))
  run(entries(['main']), '--splitting')
  run(entries(threads))
  writeAgent(directory, run)
  execFileSync(process.execPath, [join(root, UI_BUNDLER), join(directory, 'ui')])
  let extractors = 0
  for (const name of readdirSync(directory).filter((each) => each.endsWith('.js'))) {
    const file = join(directory, name)
    const text = readFileSync(file, 'utf8')
    const own = inAscii(withoutFacades(text.replaceAll(THREAD_URL, "new URL('./$1.js', import.meta.url)")))
    const changed = withNearExtractor(own)
    if (changed !== own) extractors++
    if (changed !== text) writeFileSync(file, changed)
  }
  if (extractors === 0) throw new Error('the accelerator of MessagePack is asked for in a form that is unknown here')
}

type Bundler = (inputs: readonly string[], ...more: readonly string[]) => void

/** By its command line: who has installed the program's own dependencies only can check types without it. */
function bundlerOf(root: string, directory: string, outside: readonly string[]): Bundler {
  const options = ['--bundle', '--format=esm', '--platform=node', '--target=node24', '--log-level=error']
  const output = [`--outdir=${directory}`, `--banner:js=${REQUIRE}`, '--legal-comments=linked']
  const external = outside.map((name) => `--external:${name}`)
  const commit = `--define:OUTPOST_COMMIT=${JSON.stringify(commitOf(root))}`
  return (inputs, ...more) => {
    const named = inputs.map((file) => `${parse(file).name}=${file}`)
    // Comments of the bundle name files relative to the working directory.
    execFileSync(
      join(root, 'node_modules/.bin/esbuild'),
      [...options, ...external, commit, ...output, ...more, ...named],
      { cwd: root },
    )
  }
}

/** The commit of a checkout, marked where tracked files differ from it; "unknown" without git. */
function commitOf(root: string): string {
  const git = (...args: readonly string[]) =>
    execFileSync('git', ['-C', root, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  try {
    if (realpathSync(git('rev-parse', '--show-toplevel')) !== realpathSync(root)) return 'unknown'
    const isDirty = git('status', '--porcelain', '--untracked-files=no') !== ''
    return git('rev-parse', 'HEAD').slice(0, COMMIT_DIGITS) + (isDirty ? '-dirty' : '')
  } catch {
    return 'unknown'
  }
}

/**
 * Writes `agent.js`, which is `main.js` for a process that only runs an agent. It is bundled once more without the commands, so
 * nothing is put into a chunk only because a command uses it as well. Other commands still run from it (`agent -dev` starts
 * its demo so), from the chunks of `main.js`.
 *
 * Those chunks have their own copy of each shared class, and `instanceof` in `agent.js` does not know what they throw: a
 * CommandError or UsageError of such a command ends with exit code 1, and HelpRequest is reported as an error.
 */
function writeAgent(directory: string, run: Bundler): void {
  const main = readFileSync(join(directory, 'main.js'), 'utf8')
  const agent = join(directory, 'agent.js')
  const begins = AGENT_BEGINS.map((name) => importedBy(main, name))
  const outside = [...main.matchAll(CHUNK_IMPORT)]
    .map(([, file = '']) => file)
    .filter((file) => !begins.includes(file) && file !== importedBy(main, AGENT_GOES_ON))
  const names = begins.map((file, index) => `import * as begin${index} from '${file}'\n`)
  const text = main.replaceAll(CHUNK_IMPORT, (all, file: string) =>
    begins.includes(file) ? `Promise.resolve(begin${begins.indexOf(file)})` : all,
  )
  writeFileSync(agent, names.join('') + text)
  run([agent], '--splitting', '--allow-overwrite', ...outside.map((file) => `--external:${join(directory, file)}`))
}

function importedBy(main: string, name: string): string {
  const found = [...main.matchAll(CHUNK_IMPORT)].find(([, , each]) => each === name)?.[1]
  if (found === undefined) throw new Error(`main.js does not load ${name}`)
  return found
}

/**
 * Takes Node's own modules as they are. An `import` makes a module of exports around each of them, and so evaluates all that
 * they would load late (WebCrypto, decoders): 0.04 s of CPU for each process. They come first, as imports would.
 */
function withoutFacades(text: string): string {
  const taken: string[] = []
  const rest = text.replaceAll(
    BUILTIN_IMPORT,
    (given: string, whole?: string, names?: string, all?: string, module = '') => {
      if (!isBuiltin(module)) return given
      const from = `process.getBuiltinModule(${JSON.stringify(module)})`
      for (const name of [whole, all]) if (name) taken.push(`const ${name} = ${from};`)
      if (names) taken.push(`const {${names.replaceAll(' as ', ': ')}} = ${from};`)
      return ''
    },
  )
  if (/^import .*from "node:/m.test(rest))
    throw new Error('the bundler writes an import in a form that is unknown here')
  return taken.length === 0 ? rest : `${taken.join('\n')}\n${rest}`
}

/**
 * What accelerates MessagePack is looked for where it mostly is: its own search loads ten files, reads the program's ELF header and lists
 * directories. It stays the answer wherever that one is not there, or is of another C library.
 */
function withNearExtractor(text: string): string {
  const near = '`@msgpackr-extract/msgpackr-extract-${process.platform}-${process.arch}/node.napi.glibc.node`'
  return text.replaceAll(
    EXTRACTOR,
    (own, require) => `(() => { try { return ${require}(${near}) } catch { return ${own} } })()`,
  )
}

/** What the bundler leaves of other characters is in comments and patterns; for a single one Node keeps two bytes of each character. */
function inAscii(text: string): string {
  return text.replaceAll(NOT_ASCII, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

if (import.meta.main) {
  const directory = join(ROOT, 'dist')
  mkdirSync(directory, { recursive: true })
  for (const name of readdirSync(directory)) {
    if (name !== PACKAGES) rmSync(join(directory, name), { recursive: true })
  }
  writeBundle(ROOT, directory)
}
