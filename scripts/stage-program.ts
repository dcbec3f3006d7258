/**
 * Writes an installable program into a directory: the bundle, the launcher, units, recipes, documents, the packages that the bundle
 * loads at run time with their dependencies, and Node for one architecture. `systemd/install.sh` and `npm run dist` use it; the
 * result needs neither the checkout nor a network.
 *
 *     node scripts/stage-program.ts DIR        DIR exists and is empty
 */
import { cpSync, existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { outsidePackages, writeBundle } from './bundle.ts'
import { platformModules } from './dist/architecture.ts'

const ROOT = resolve(import.meta.dirname, '..')
const PARTS = [
  'bin',
  'systemd',
  'deploy',
  'recipes',
  'docs',
  'package.json',
  'agent.hcl.example',
  'README.md',
  'CHANGELOG.md',
  'LICENSE',
]

/** Source maps, type declarations and descriptions of npm packages: a third of their size, which no program reads. */
const UNUSED_FILE = /\.(?:map|d\.[cm]?ts)$|^(?:README|CHANGELOG|HISTORY)(?:\.\w+)?$/i

/** Throws where a package of the program is not installed. */
export function stageProgram(directory: string, architecture: string = process.arch): void {
  if (readdirSync(directory).length > 0) throw new Error(`${directory} is not empty`)
  const platform = platformModules(ROOT, architecture)
  if (platform === undefined && architecture !== process.arch) {
    throw new Error(`Node for ${architecture} is not installed: run "npm run dist:fetch -- ${architecture}"`)
  }
  for (const part of PARTS) cpSync(join(ROOT, part), join(directory, part), { recursive: true })
  writeBundle(ROOT, join(directory, 'dist'))
  for (const folder of packageFolders(outsidePackages(ROOT))) copyPackage(join(ROOT, folder), join(directory, folder))
  const modules = platform ?? join(ROOT, 'node_modules')
  const accelerator = `@msgpackr-extract/msgpackr-extract-${process.platform}-${architecture}`
  if (existsSync(join(modules, accelerator))) {
    copyPackage(join(modules, accelerator), join(directory, 'node_modules', accelerator))
  }
  copyNode(modules, architecture, directory)
}

function copyPackage(source: string, target: string): void {
  cpSync(source, target, { recursive: true, dereference: true, filter: isUsed })
}

function isUsed(file: string): boolean {
  return !UNUSED_FILE.test(basename(file))
}

/** The binary without its headers and without npm, which are a third of the package. */
function copyNode(modules: string, architecture: string, directory: string): void {
  const name = `node-${process.platform}-${architecture}`
  for (const part of ['bin/node', 'package.json', 'LICENSE']) {
    const source = join(modules, name, part)
    if (existsSync(source)) cpSync(source, join(directory, 'node_modules', name, part), { dereference: true })
  }
}

/** The folders of packages and of all that they depend on, relative to the root; optional ones that are not installed are left out. */
function packageFolders(names: readonly string[]): readonly string[] {
  const folders = new Set<string>()
  const add = (name: string, from: string, isOptional: boolean) => {
    const folder = folderOf(name, from)
    if (folder === undefined) {
      if (isOptional) return
      throw new Error(`the package ${name} is not installed: run "npm ci"`)
    }
    // Those of one architecture are copied for the architecture of the program.
    if (folders.has(folder) || name.startsWith('@types/') || name.startsWith('@msgpackr-extract/')) return
    folders.add(folder)
    const { required, optional } = dependenciesOf(folder)
    for (const each of required) add(each, folder, optional.includes(each))
    for (const each of optional) add(each, folder, true)
  }
  for (const name of names) add(name, '', false)
  return [...folders]
}

/** Where Node would find the package, seen from a folder of the tree. */
function folderOf(name: string, from: string): string | undefined {
  for (let at = from; ; at = dirname(at)) {
    const folder = join(at, 'node_modules', name)
    if (existsSync(join(ROOT, folder, 'package.json'))) return folder
    if (at === '' || at === '.') return undefined
  }
}

interface Dependencies {
  readonly required: readonly string[]
  readonly optional: readonly string[]
}

function dependenciesOf(folder: string): Dependencies {
  const content: unknown = JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8'))
  const namesIn = (field: string): string[] => {
    if (typeof content !== 'object' || content === null) return []
    const value: unknown = Object.entries(content).find(([key]) => key === field)?.[1]
    return typeof value === 'object' && value !== null ? Object.keys(value) : []
  }
  return { required: namesIn('dependencies'), optional: namesIn('optionalDependencies') }
}

if (import.meta.main) {
  const [directory] = process.argv.slice(2)
  if (directory === undefined || !existsSync(directory)) {
    process.stderr.write('usage: node scripts/stage-program.ts DIR   (an empty directory)\n')
    process.exit(2)
  }
  stageProgram(resolve(directory))
}
