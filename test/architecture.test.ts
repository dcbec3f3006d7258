/**
 * The structure of the code as a test: which module may import which, the order of the folders inside the modules, the length of
 * files, names, and a theory of operation in the main file of each module. A rule that proves wrong is changed here, with a
 * reason, in the same commit as the code that needs it (docs/decisions/100).
 */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { test } from 'node:test'

const ROOT = resolve(import.meta.dirname, '..')
const SRC = join(ROOT, 'src')
const UI = join(ROOT, 'ui')

/** Module → what it may import besides itself and platform: a module, a folder of one, or one file of one. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  platform: [],
  config: [],
  http: [],
  telemetry: [], // the daemon hands it what the other modules know
  host: [],
  cluster: [],
  storage: [],
  // never the barrier: replication has no key that opens a value. Its messages have the encoding of those on NATS
  dr: ['storage/sqlite', 'storage/store', 'storage/merkle', 'storage/snapshot', 'cluster/nats/message-pack.ts'],
  // never the barrier: members exchange ciphertext. A copy between members is the Merkle comparison of disaster recovery. The
  // message of a restore has the metadata of its snapshot, which are parsed by their schema
  ha: [
    'storage/sqlite',
    'storage/store',
    'storage/snapshot/format',
    'cluster/nats/message-pack.ts',
    'cluster/nats/timings.ts',
    'cluster/nats/ha-subjects.ts', // `permissions.ts` restricts the same subjects
    'dr/link/messages.ts',
    'dr/primary/merkle-responder.ts',
    'dr/secondary/merkle-sync.ts',
  ],
  engines: ['storage/barrier/storage.ts'], // an engine reaches its own prefix only
  auth: ['engines/framework', 'storage/barrier/storage.ts'],
  // policies are HCL (docs/decisions/003), and the server formats them for the web interface
  secrets: ['engines', 'auth', 'storage/barrier', 'storage/seal', 'config/hcl.ts', 'config/hcl-format.ts'],
  login: [], // shared by the agent and `outpost exec`, which hand it the connection
  supervisor: [],
  // `validate` reads configuration, `cluster keys` writes permissions, `policy check` decides without a server, `audit verify`
  // reads audit lines, `mfa totp generate` draws QR codes, `operator snapshot inspect` verifies a file; other commands talk HTTP like any client
  cli: [
    'supervisor',
    'config',
    'login',
    'cluster/nats/permissions.ts',
    'secrets/policies/policy-answer.ts',
    'secrets/audit/audit-chain.ts',
    'engines/totp/qr.ts',
    'storage/snapshot/inspect.ts',
  ],
  ui: [],
}
/** Packages that files of the web interface import. Another one would need a reason: each makes the page larger. */
const UI_PACKAGES = ['preact', 'preact/hooks', '@preact/signals', 'uplot', 'ansi-sequence-parser', 're2js']
/** Folders of `storage`, lower ones first: plaintext exists in the last two only. */
const STORAGE_FLOORS = ['sqlite', 'merkle', 'snapshot/format', 'store', 'snapshot', 'barrier', 'seal']
const PLATFORM_FILES_MAX = 22
const FILE_LINES_MAX = 500
/** Files of a folder, without those of its folders. */
const FOLDER_FILES_MAX = 21
/** One file for each word after `outpost`. */
const COMMAND_WORDS = 'src/cli/commands'
const VAGUE_TYPE_NAMES = new Set('Place Wanted Asked Found Reading Waiting Told Taken Opened Values'.split(' '))
const BANNED_NAMES = /(^|-)(util|utils|helper|helpers|manager|common|base|misc)(-|\.)/
/** The file that has the theory of operation of a module. */
const MAIN_FILE: Readonly<Record<string, string>> = {
  platform: 'operation.ts',
  config: 'load.ts',
  host: 'host.ts',
  http: 'listener.ts',
  telemetry: 'telemetry.ts',
  cli: 'command.ts',
  secrets: 'request/handle-request.ts',
  engines: 'framework/engine.ts',
  cluster: 'route.ts',
  login: 'session.ts',
  storage: 'store/store.ts',
  dr: 'replication.ts',
  ha: 'ha-server.ts',
  supervisor: 'alloc-run.ts',
  ui: 'ui.ts',
}
/** Modules whose theory of operation is that of another module. */
const WITHOUT_THEORY: Readonly<Record<string, string>> = {
  auth: 'engines/framework/engine.ts',
  daemon: 'docs/architecture.md',
}

function walk(folder: string, ending = /\.ts$/): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && ending.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted()
}

function moduleOf(file: string): string {
  const path = relative(SRC, file)
  return path.includes('/') ? (path.split('/')[0] ?? '') : 'main'
}

/** True for the modules that build and join all others. */
function isTop(module: string): boolean {
  return module === 'main' || module === 'daemon'
}

const ANY_IMPORT = /(?:\bfrom|\bimport)\s*\(?\s*'(\.[^']+)'/g
const STATIC_IMPORT = /(?:\bfrom|\bimport)\s*'(\.[^']+)'/g

/** Files that `file` imports by a relative path: static, type-only, bare, dynamic and re-exports alike. */
function importsOf(file: string, pattern = ANY_IMPORT): string[] {
  const text = readFileSync(file, 'utf8')
  return [...text.matchAll(pattern)].map(([, target]) => resolve(dirname(file), target ?? ''))
}

/** Files that `file` starts as a worker: a dependency between rooms, but no cycle, because nothing is evaluated here. */
function workersOf(file: string): string[] {
  const text = readFileSync(file, 'utf8')
  const pattern = /new URL\(\s*'(\.[^']+\.ts)'/g
  return [...text.matchAll(pattern)].map(([, target]) => resolve(dirname(file), target ?? ''))
}

const files = walk(SRC)
const uiFiles = walk(UI, /\.tsx?$/)

test('modules import only what the map allows', () => {
  const wrong: string[] = []
  for (const file of files) {
    const from = moduleOf(file)
    if (isTop(from)) continue
    const allowed = MAY_IMPORT[from]
    if (allowed === undefined) wrong.push(`${relative(ROOT, file)}: module "${from}" is not in the map`)
    for (const target of [...importsOf(file), ...workersOf(file)]) {
      const to = moduleOf(target)
      if (to === from || to === 'platform') continue
      const path = relative(SRC, target)
      if (!allowed?.some((name) => path === name || path.startsWith(`${name}/`))) {
        wrong.push(
          `${relative(ROOT, file)} may not import ${relative(ROOT, target)}: ${from} may import ${allowed?.join(', ') || 'platform only'}`,
        )
      }
    }
  }
  assert.deepEqual(wrong, [])
})

test('no import cycles between files', () => {
  assert.deepEqual(cyclesIn(new Map(files.map((file) => [file, importsOf(file)]))), [])
})

/**
 * The folders inside a module are floors: imports between them go one way. A file that is named like its folder composes the
 * folders below it (`engines/kv/kv.ts`), so it counts as a floor above them. The table of commands loads each command when it
 * is called; such an import is no dependency.
 */
test('no import cycles between folders', () => {
  const withFolders = new Set(files.map((file) => dirname(dirname(file))))
  const floorOf = (file: string) => {
    const folder = dirname(file)
    const composes = withFolders.has(folder) && basename(file, '.ts') === basename(folder)
    return composes ? file : folder
  }
  const graph = new Map<string, Set<string>>(files.map((file) => [floorOf(file), new Set()]))
  for (const file of files) {
    for (const target of importsOf(file, STATIC_IMPORT)) {
      if (floorOf(target) !== floorOf(file)) graph.get(floorOf(file))?.add(floorOf(target))
    }
  }
  assert.deepEqual(cyclesIn(graph), [])
})

test('plaintext stays above the barrier', () => {
  const floor = (file: string) =>
    STORAGE_FLOORS.findLastIndex((name) => relative(join(SRC, 'storage'), file).startsWith(`${name}/`))
  const barrier = STORAGE_FLOORS.indexOf('barrier')
  const wrong = files
    .filter((file) => moduleOf(file) === 'storage')
    .flatMap((file) => importsOf(file).map((target) => [file, target] as const))
    .filter(([file, target]) => moduleOf(target) === 'storage' && floor(target) >= barrier && floor(file) < barrier)
  assert.deepEqual(wrong, [])
})

function cyclesIn(graph: ReadonlyMap<string, Iterable<string>>, root = SRC): string[] {
  const state = new Map<string, 'open' | 'done'>()
  const cycles: string[] = []
  const visit = (file: string, path: string[]) => {
    if (state.get(file) === 'done') return
    if (state.get(file) === 'open') {
      cycles.push([...path.slice(path.indexOf(file)), file].map((name) => relative(root, name)).join(' -> '))
      return
    }
    state.set(file, 'open')
    for (const next of graph.get(file) ?? []) visit(next, [...path, file])
    state.set(file, 'done')
  }
  for (const file of graph.keys()) visit(file, [])
  return cycles
}

test('the web interface imports only itself and its packages', () => {
  const anyImport = /^(?:import|export)\b[^'"]*?\bfrom '([^']+)'|^import '([^']+)'|\bimport\('([^']+)'\)/gm
  const wrong = uiFiles.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(anyImport)]
      .map(([, from, bare, dynamic]) => from ?? bare ?? dynamic ?? '')
      .filter((target) =>
        target.startsWith('.') ? !resolve(dirname(file), target).startsWith(`${UI}/`) : !UI_PACKAGES.includes(target),
      )
      .map((target) => `${relative(ROOT, file)} may not import ${target}`),
  )
  assert.deepEqual(wrong, [])
})

test('no import cycles between files of the web interface', () => {
  assert.deepEqual(cyclesIn(new Map(uiFiles.map((file) => [file, importsOf(file)])), UI), [])
})

test('files and folders stay small', () => {
  const folders = ['test', 'bench', 'scripts'].flatMap((folder) => walk(join(ROOT, folder)))
  const long = [...files, ...uiFiles, ...folders]
    .map((file) => ({ file, lines: readFileSync(file, 'utf8').split('\n').length }))
    .filter(({ lines }) => lines > FILE_LINES_MAX)
    .map(({ file, lines }) => `${relative(ROOT, file)}: ${lines} lines, at most ${FILE_LINES_MAX}`)
  assert.deepEqual(long, [])
  const full = [...Map.groupBy([...files, ...uiFiles], (file) => dirname(file))]
    .filter(([folder, members]) => members.length > FOLDER_FILES_MAX && relative(ROOT, folder) !== COMMAND_WORDS)
    .map(([folder, { length }]) => `${relative(ROOT, folder)}: ${length} files, at most ${FOLDER_FILES_MAX}`)
  assert.deepEqual(full, [])
})

test('file names describe their content', () => {
  const wrong = files.filter((file) => BANNED_NAMES.test(basename(file)))
  assert.deepEqual(wrong, [])
  const odd = files.filter((file) => !/^[a-z0-9]+(-[a-z0-9]+)*\.ts$/.test(basename(file)))
  assert.deepEqual(odd, [], 'file names are kebab-case')
})

interface DeclaredType {
  readonly exported: boolean
  readonly file: string
  readonly name: string
}

function typesIn(sources: readonly string[]): DeclaredType[] {
  return sources.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/^(export )?(?:abstract )?(?:interface|type|class) (\w+)/gm)].map(
      ([, exported, name = '']) => ({ exported: exported !== undefined, file: relative(ROOT, file), name }),
    ),
  )
}

function repeatedIn(types: readonly DeclaredType[]): string[] {
  return [...Map.groupBy(types, ({ name }) => name)]
    .filter(([, same]) => same.length > 1)
    .map(([name, same]) => `${name}: ${same.map(({ file }) => file).join(', ')}`)
}

test('names of exported types are unique and descriptive', () => {
  const declared = typesIn(files)
  const exported = declared.filter((type) => type.exported)
  assert.ok(exported.length > 500, `${exported.length} exported types`)
  assert.deepEqual(repeatedIn(exported), [])
  // The web interface has types of its own for responses, with the names that they have in the server.
  const ofUi = typesIn(uiFiles).filter((type) => type.exported)
  assert.ok(ofUi.length > 100, `${ofUi.length} exported types of the web interface`)
  assert.deepEqual(repeatedIn(ofUi), [])
  const vague = declared.filter(({ name }) => VAGUE_TYPE_NAMES.has(name)).map(({ file, name }) => `${name}: ${file}`)
  assert.deepEqual(vague, [])
})

test('the platform module stays small', () => {
  const platform = files.filter((file) => moduleOf(file) === 'platform')
  assert.ok(
    platform.length <= PLATFORM_FILES_MAX,
    `platform has ${platform.length} files, at most ${PLATFORM_FILES_MAX}`,
  )
})

test('every module opens with its theory of operation', () => {
  const modules = new Set(files.map(moduleOf).filter((module) => module !== 'main' && !(module in WITHOUT_THEORY)))
  const wrong: string[] = []
  for (const module of modules) {
    const main = MAIN_FILE[module]
    if (!main) {
      wrong.push(`${module}: name its main file in MAIN_FILE`)
      continue
    }
    const text = readFileSync(join(SRC, module, main), 'utf8')
    const comment = /^\/\*\*[\s\S]*?\*\//.exec(text)?.[0] ?? ''
    const length = comment.split('\n').length
    if (length < 10 || length > 60) wrong.push(`src/${module}/${main}: opening comment has ${length} lines, 10 to 60`)
  }
  assert.deepEqual(wrong, [])
})

/** Documents name paths of the API below `auth/` as well, and an event of the audit log below `storage/`. */
const NAMED_MODULES = Object.keys(MAY_IMPORT).filter((module) => module !== 'auth')
const NOT_FILES = ['src/storage/snapshot-new']

test('files that the documents name exist', () => {
  // Decisions name files as they were at their time.
  const documents = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.md') && !name.startsWith('decisions/'),
  )
  const wrong: string[] = []
  for (const document of ['README.md', ...documents.map((name) => join('docs', name))]) {
    const text = readFileSync(join(ROOT, document), 'utf8')
    const named = [...text.matchAll(/`((?:src|test|docs|fixtures|bench|scripts|systemd)\/[\w./-]+)`/g)]
    // A file of a module without its ending: `http/router`.
    const short = [...text.matchAll(new RegExp(`\`((?:${NAMED_MODULES.join('|')})/[a-z][a-z0-9/-]*)\``, 'g'))]
    const paths = [
      ...named.map(([, path = '']) => path),
      ...short.map(([, path = '']) => (existsSync(join(ROOT, path)) ? path : join('src', path))),
    ]
    for (const path of paths) {
      if (NOT_FILES.includes(path)) continue
      if (!existsSync(join(ROOT, path)) && !existsSync(join(ROOT, `${path}.ts`))) wrong.push(`${document}: ${path}`)
    }
  }
  assert.deepEqual(wrong, [])
})

test('no file evaluates undici at its start', () => {
  // `import` of a value from node:http does: a sixth of the processor time of a start.
  const values = /^import (?!type\b)[^;]*?from 'node:http'/m
  const wrong = files.filter((file) => values.test(readFileSync(file, 'utf8').replaceAll(/^import type .*$/gm, '')))
  assert.deepEqual(
    wrong.map((file) => relative(ROOT, file)),
    [],
  )
})

test('only storage opens SQLite', () => {
  const wrong = files.filter((file) => {
    const text = readFileSync(file, 'utf8')
    return /from 'node:sqlite'/.test(text) && !relative(SRC, file).startsWith('storage/')
  })
  assert.deepEqual(wrong, [])
})
