/**
 * Builds the web interface: `ui/` → a page, a style sheet and scripts, whose names contain a hash of their content. Each view is a
 * script of its own, which the page loads when it is opened.
 *
 *     node scripts/ui-bundle.ts DIRECTORY     writes the files, and a .br file beside each
 *
 * In a checkout, the agent calls `build` at the first request for the page (src/ui/assets.ts).
 */
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname, join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import { brotliCompress, constants } from 'node:zlib'
import { pageOf } from '../src/ui/assets.ts'
import { build as bundle, type BuildOptions, type Metafile, type Plugin, stop } from 'esbuild'

const ROOT = resolve(import.meta.dirname, '..')
const UI = join(ROOT, 'ui')
const PAGE = 'index.html'
const ENTRY = 'ui/main.tsx'
/** The view that `/ui/` opens. */
const FIRST_VIEW = 'ui/views/logs/log-list-view.tsx'
const ROUTES = join(UI, 'app/routes.ts')
const ROUTE = /pattern: '\/([^']+)', load: \(\) => import\('\.\.\/(views\/[^']+)'\)/g
const CORE = join(UI, 'core.ts')
const VIEWS = /\/ui\/views\/.*-view\.tsx$/
const LICENSES = 'assets/licenses.txt'
/** Good compression in a few milliseconds; a release waits for the best. */
const QUICK = 5
const BEST = constants.BROTLI_MAX_QUALITY
/** A smaller file fits into one packet. */
const COMPRESSED_FROM_BYTES = 1000

const compress = promisify(brotliCompress)

export interface BuiltFile {
  readonly path: string
  readonly bytes: Uint8Array
  readonly brotli?: Uint8Array
}

/** Changes with each change of a source. */
export function stamp(): string {
  return readdirSync(UI, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map(({ name, parentPath }) => {
      const { mtimeMs, size } = statSync(join(parentPath, name))
      return `${parentPath}/${name}:${mtimeMs}:${size}`
    })
    .join('\n')
}

/** The bundler makes one script of the files that all views import. */
const shareCore: Plugin = {
  name: 'share-core',
  setup(bundler) {
    bundler.onLoad({ filter: VIEWS }, async ({ path }) => {
      const source = await readFile(path, 'utf8')
      return { contents: `${source}\nimport ${JSON.stringify(CORE)}\n`, loader: 'tsx' }
    })
  },
}

const OPTIONS = {
  absWorkingDir: ROOT,
  entryPoints: [ENTRY],
  bundle: true,
  splitting: true,
  format: 'esm' as const,
  target: ['chrome120', 'firefox120', 'safari17'],
  jsx: 'automatic' as const,
  jsxImportSource: 'preact',
  minify: true,
  write: false as const,
  metafile: true as const,
  logLevel: 'silent' as const,
  legalComments: 'none' as const,
  outdir: 'assets',
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  assetNames: '[name]-[hash]',
  loader: { '.svg': 'file' },
  plugins: [shareCore],
} satisfies BuildOptions

/** Ends the bundler's process, which would otherwise stay. */
async function bundleOnce() {
  try {
    return await bundle(OPTIONS)
  } finally {
    await stop()
  }
}

/** The files, by their path below `/ui/`. Rejects with the bundler's messages for a source with errors. */
export async function build(quality = QUICK): Promise<BuiltFile[]> {
  const { metafile, outputFiles } = await bundleOnce()
  const files = outputFiles.map(({ contents, path }) => ({ path: relative(ROOT, path), bytes: contents }))
  const licenses = { path: LICENSES, bytes: Buffer.from(licensesOf(Object.keys(metafile.inputs))) }
  const all = [...pagesOf(metafile), licenses, ...files]
  return Promise.all(all.map((file) => withBrotli(file, quality)))
}

/** The pages: each requests the scripts of its view at once, which the browser would otherwise request one level after the other. */
function pagesOf(metafile: Metafile): BuiltFile[] {
  const script = outputOf(metafile, ENTRY)
  const template = readFileSync(join(UI, PAGE), 'utf8')
    .replace('{{script}}', script)
    .replace('{{style}}', metafile.outputs[script]?.cssBundle ?? '')
  return Array.from(viewsByPage(), ([path, view]) => {
    const preloads = scriptsOf(metafile, [script, outputOf(metafile, view)]).filter((name) => name !== script)
    const links = preloads.map((name) => `<link rel="modulepreload" href="/ui/${name}" />`)
    return { path, bytes: Buffer.from(template.replace('{{preloads}}', links.join('\n    '))) }
  })
}

/** Of two patterns with one page the last is the more general one. */
function viewsByPage(): Map<string, string> {
  const routes = readFileSync(ROUTES, 'utf8').matchAll(ROUTE)
  const views = Array.from(routes, ([, pattern = '', view]): [string, string] => [pageOf(pattern), `ui/${view}`])
  return new Map([[PAGE, FIRST_VIEW], ...views])
}

function outputOf({ outputs }: Metafile, source: string): string {
  const found = Object.entries(outputs).find(([, { entryPoint }]) => entryPoint === source)
  if (!found) throw new Error(`the bundler returned no file for ${source}`)
  return found[0]
}

/** These scripts, and those that they import. */
function scriptsOf({ outputs }: Metafile, names: readonly string[]): string[] {
  const scripts = new Set(names)
  for (const name of scripts) {
    for (const { kind, path } of outputs[name]?.imports ?? []) if (kind === 'import-statement') scripts.add(path)
  }
  return [...scripts]
}

/** The license texts of the packages in the scripts; `inputs` are files relative to the root. */
function licensesOf(inputs: readonly string[]): string {
  const names = inputs.flatMap((input) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1] ?? [])
  return [...new Set(names)]
    .toSorted()
    .map((name) => {
      const directory = join(ROOT, 'node_modules', name)
      const file = readdirSync(directory).find((each) => /^licen[cs]e/i.test(each))
      const text = file === undefined ? declaredLicense(directory) : readFileSync(join(directory, file), 'utf8')
      return `${name}\n\n${text.trim()}\n`
    })
    .join(`\n${'-'.repeat(80)}\n\n`)
}

/** Of a package without a license text. */
function declaredLicense(directory: string): string {
  const { author, license }: { author?: string; license?: string } = JSON.parse(
    readFileSync(join(directory, 'package.json'), 'utf8'),
  )
  if (license === undefined) throw new Error(`${directory} has no license`)
  return `License: ${license}\nAuthor: ${author ?? 'unknown'}`
}

async function withBrotli(file: BuiltFile, quality: number): Promise<BuiltFile> {
  if (file.bytes.length < COMPRESSED_FROM_BYTES) return file
  return { ...file, brotli: await compress(file.bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: quality } }) }
}

/** Writes the files of a release into `directory`. */
export async function writeUi(directory: string): Promise<void> {
  for (const { brotli, bytes, path } of await build(BEST)) {
    const file = join(directory, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, bytes)
    if (brotli) writeFileSync(`${file}.br`, brotli)
  }
}

if (import.meta.main) {
  const directory = process.argv[2]
  if (directory === undefined) throw new Error('usage: node scripts/ui-bundle.ts DIRECTORY')
  await writeUi(directory)
}
