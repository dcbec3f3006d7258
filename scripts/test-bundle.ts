/**
 * Bundles the processes of a test run: each group of test files (`test-groups.ts`) becomes one file of JavaScript, and what several
 * groups import becomes shared chunks. A process loads about 300 modules otherwise, which is half a second of CPU; a run has about 100
 * processes. Without shared chunks the bundles have 190 MB, and each process compiles its own.
 *
 * Promises. A bundle is made of the sources as they are when the run begins, and is removed when it ends. In a bundle
 * `import.meta` names the source file, so tests find fixtures, threads and programs where they are. Reports name the source files;
 * stack traces name lines of the bundle, where a comment before each module names its file. A module that sets times of clusters is
 * evaluated before the modules that read them: the files of such a group are imported after it.
 *
 * Assumptions. Modules of npm stay outside, so that they exist once in a process. A module that a test imports by a computed
 * URL is loaded from the sources, apart from the one in the bundle.
 *
 * Failure modes. Where the bundler fails, the run uses the sources and says why.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Plugin } from 'esbuild'
import { type Groups, timesOf } from './test-groups.ts'

const GROUP = 'test-group'
/** The bundler writes this comment before each module. */
const MODULE_COMMENT = /^ *\/\/ ((?:test|src|scripts|bench)\/\S+\.ts)$/

export class TestBundles {
  readonly groups: Groups
  readonly #root: string
  readonly #folder: string
  /** First lines of the modules of a bundle, in order. */
  readonly #modules = new Map<string, readonly { readonly line: number; readonly file: string }[]>()

  private constructor(root: string, folder: string, groups: Groups) {
    this.#root = root
    this.#folder = folder
    this.groups = groups
  }

  /** Bundles each group. Throws the error of the bundler. */
  static async make(root: string, groups: Groups): Promise<TestBundles> {
    const { build } = await import('esbuild')
    const kept = join(root, 'node_modules/.cache')
    mkdirSync(kept, { recursive: true })
    const folder = mkdtempSync(join(kept, 'test-bundles-'))
    process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
    const named = [...groups.values()].map((members, at) => {
      const [first = ''] = members
      const name = members.length > 1 ? basename(dirname(first)) : basename(first, '.test.ts')
      return { name: `${at + 1}-${name}`, members }
    })
    const membersOf = new Map(named.map(({ name, members }) => [name, members]))
    await build({
      entryPoints: named.map(({ name }) => ({ in: `${GROUP}:${name}`, out: `${name}.test` })),
      outdir: folder,
      outExtension: { '.js': '.mjs' },
      absWorkingDir: root,
      bundle: true,
      splitting: true,
      format: 'esm',
      platform: 'node',
      target: 'node24',
      packages: 'external',
      legalComments: 'none',
      define: LOCATIONS,
      logLevel: 'silent',
      plugins: [groupEntries(root, membersOf), sourceLocations],
    })
    return new TestBundles(
      root,
      folder,
      new Map(named.map(({ name, members }) => [join(folder, `${name}.test.mjs`), members])),
    )
  }

  /** The source file of a line of a bundle; the file itself if it is not a bundle. */
  sourceOf(file: string, line: number): string {
    if (dirname(file) !== this.#folder) return file
    const modules = this.#modules.get(file) ?? this.#readModules(file)
    return modules.findLast((module) => module.line <= line)?.file ?? file
  }

  #readModules(bundle: string): readonly { readonly line: number; readonly file: string }[] {
    const modules = readFileSync(bundle, 'utf8')
      .split('\n')
      .flatMap((text, at) => {
        const [, name] = MODULE_COMMENT.exec(text) ?? []
        return name === undefined ? [] : [{ line: at + 1, file: join(this.#root, name) }]
      })
    this.#modules.set(bundle, modules)
    return modules
  }
}

/** Suffix of the module that imports the files of a group after the times were set. */
const AFTER_TIMES = '.after-times'

/** The module that imports the files of a group in order. */
function entryOf(name: string, members: readonly string[]): string {
  const [first = ''] = members
  const times = timesOf(first)
  const isFirst = times !== undefined && !name.endsWith(AFTER_TIMES)
  if (!isFirst) return members.map((file) => `import ${JSON.stringify(file)}\n`).join('')
  return `import ${JSON.stringify(`./test/helpers/${times}.ts`)}\nawait import(${JSON.stringify(`${GROUP}:${name}${AFTER_TIMES}`)})\n`
}

function groupEntries(root: string, membersOf: ReadonlyMap<string, readonly string[]>): Plugin {
  return {
    name: GROUP,
    setup(build) {
      build.onResolve({ filter: new RegExp(`^${GROUP}:`) }, ({ path }) => ({
        path: path.slice(GROUP.length + 1),
        namespace: GROUP,
      }))
      build.onLoad({ filter: /.*/, namespace: GROUP }, ({ path }) => ({
        contents: entryOf(path, membersOf.get(path.replace(AFTER_TIMES, '')) ?? []),
        resolveDir: root,
      }))
    },
  }
}

/**
 * `import.meta` of each module stays that of its source: constants before its first line, by the names that the bundler puts in place
 * of the properties. It parses the source, so text in strings is left as it is.
 */
const LOCATIONS = {
  'import.meta.dirname': 'sourceDirectory__',
  'import.meta.filename': 'sourceFile__',
  'import.meta.url': 'sourceUrl__',
  'import.meta.main': 'false',
}

const sourceLocations: Plugin = {
  name: 'source-locations',
  setup(build) {
    build.onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8')
      if (!text.includes('import.meta.')) return undefined
      const [directory, file, url] = [dirname(path), path, pathToFileURL(path).href].map((each) => JSON.stringify(each))
      // On the same line, so that lines keep their numbers.
      const constants = `const sourceDirectory__ = ${directory}, sourceFile__ = ${file}, sourceUrl__ = ${url}; `
      return { contents: constants + text, loader: 'ts' }
    })
  },
}
