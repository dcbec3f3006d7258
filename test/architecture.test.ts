/**
 * The rules of the code's shape, as a test: who may import whom, how long files and functions may be, what names are
 * banned, and that every room opens with its theory of operation. A rule that proves wrong is changed here, with a
 * reason, in the same commit as the code that needs it.
 */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { test } from 'node:test'

const ROOT = resolve(import.meta.dirname, '..')
const SRC = join(ROOT, 'src')

/** Room → what it may import besides itself and kit: a room, or one file of a room. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  kit: [],
  config: [],
  store: [],
  barrier: ['store'],
  // never barrier: DR has no way to open a value. Its messages are packed as those on the bus, by the one file that knows what
  // is refused there
  replication: ['store', 'cluster/nats/message-pack.ts'],
  engines: ['storage/barrier/storage.ts'],
  secrets: ['engines', 'barrier', 'config/hcl.ts'], // policies are HCL too: one reader for both (docs/decisions/003)
  host: [],
  http: [],
  agent: [], // what the process says of itself; the daemon tells it what the other rooms know
  cluster: [],
  // a room of its own because both an agent and a command (`exec`) log in: who asks, and how, they tell it
  login: [],
  // `validate` reads configuration, `cluster keys` writes permissions, `policy check` decides as the server would, without
  // one, `audit verify` reads the lines that devices write, `mfa totp generate` draws QR codes; a command otherwise talks HTTP
  // like any client
  cli: [
    'config',
    'login',
    'cluster/nats/permissions.ts',
    'secrets/policies/policy-answer.ts',
    'secrets/audit/audit-chain.ts',
    'engines/totp/qr.ts',
  ],
  ui: [],
}
/**
 * What every room speaks; with the ninth, all that gives way to others on the event loop has one budget (platform/scheduler.ts), with
 * the tenth names are hidden in one way (platform/keyed-hash.ts): those of entries, and those in the access log. With the eleventh
 * what is under way leaves no garbage behind (platform/passing.ts): commits, entries in flight, requests. The next three are the worker
 * pool: its queue, the pool and the worker's side. The last is the space kept for a full disk, which the store and the audit files need alike.
 */
const KIT_FILES_MAX = 16
const FILE_LINES_MAX = 500
const FUNCTION_LINES_MAX = 70
const BANNED_NAMES = /(^|-)(util|utils|helper|helpers|manager|common|base|misc)(-|\.)/
/** The file that holds a room's theory of operation. */
const MAIN_FILE: Readonly<Record<string, string>> = {
  kit: 'operation.ts',
  config: 'load.ts',
  host: 'host.ts',
  http: 'listener.ts',
  agent: 'agent.ts',
  cli: 'command.ts',
  secrets: 'handle.ts',
  engines: 'engine.ts',
  cluster: 'route.ts',
  login: 'session.ts',
  store: 'store.ts',
  barrier: 'barrier.ts',
  replication: 'replication.ts',
}

function walk(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
}

function roomOf(file: string): string {
  const path = relative(SRC, file)
  return path.includes('/') ? (path.split('/')[0] ?? '') : 'top'
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

test('rooms import only what the map allows', () => {
  const wrong: string[] = []
  for (const file of files) {
    const from = roomOf(file)
    if (from !== 'top' && !(from in MAY_IMPORT)) wrong.push(`${relative(ROOT, file)}: room "${from}" is not in the map`)
    if (from === 'top') continue
    for (const target of [...importsOf(file), ...workersOf(file)]) {
      const to = roomOf(target)
      if (to === from || to === 'kit') continue
      const allowed = MAY_IMPORT[from] ?? []
      if (!allowed.includes(to) && !allowed.includes(relative(SRC, target))) {
        wrong.push(
          `${relative(ROOT, file)} may not import ${relative(ROOT, target)}: ${from} may import ${allowed.join(', ') || 'only kit'}`,
        )
      }
    }
  }
  assert.deepEqual(wrong, [])
})

test('no import cycles between files', () => {
  assert.deepEqual(cyclesIn(new Map(files.map((file) => [file, importsOf(file)]))), [])
})

/** A command is loaded when it is called, by its table, which stands in the folder above: such an import is no dependency. */
test('no import cycles between folders', () => {
  const graph = new Map<string, Set<string>>(files.map((file) => [dirname(file), new Set()]))
  for (const file of files) {
    for (const target of importsOf(file, STATIC_IMPORT)) {
      if (dirname(target) !== dirname(file)) graph.get(dirname(file))?.add(dirname(target))
    }
  }
  assert.deepEqual(cyclesIn(graph), [])
})

function cyclesIn(graph: ReadonlyMap<string, Iterable<string>>): string[] {
  const state = new Map<string, 'open' | 'done'>()
  const cycles: string[] = []
  const visit = (file: string, path: string[]) => {
    if (state.get(file) === 'done') return
    if (state.get(file) === 'open') {
      cycles.push([...path.slice(path.indexOf(file)), file].map((name) => relative(SRC, name)).join(' -> '))
      return
    }
    state.set(file, 'open')
    for (const next of graph.get(file) ?? []) visit(next, [...path, file])
    state.set(file, 'done')
  }
  for (const file of graph.keys()) visit(file, [])
  return cycles
}

test('files and functions stay short', () => {
  const long: string[] = []
  for (const file of [
    ...files,
    ...walk(join(ROOT, 'test')),
    ...walk(join(ROOT, 'bench')),
    ...walk(join(ROOT, 'scripts')),
  ]) {
    const lines = readFileSync(file, 'utf8').split('\n')
    if (lines.length > FILE_LINES_MAX) long.push(`${relative(ROOT, file)}: ${lines.length} lines`)
    if (!file.startsWith(SRC)) continue
    for (const [name, length] of functionLengths(lines)) {
      if (length > FUNCTION_LINES_MAX) long.push(`${relative(ROOT, file)}: ${name} has ${length} lines`)
    }
  }
  assert.deepEqual(long, [])
  const top = readFileSync(join(SRC, 'main.ts'), 'utf8').split('\n').length
  assert.ok(top <= 61, `src/main.ts has ${top} lines, at most 60`)
  const daemon = readFileSync(join(SRC, 'daemon.ts'), 'utf8').split('\n').length
  assert.ok(daemon <= 303, `src/daemon/daemon.ts has ${daemon} lines, at most 302`)
})

/**
 * Lengths of functions and methods. The code is formatted, so a function ends at the first line that closes at the
 * column where its first line began.
 */
function functionLengths(lines: readonly string[]): [string, number][] {
  const found: [string, number][] = []
  const opening =
    /^(\s*)(?:export |default |static |private |override |get |set )*(?:async )?(?:function\*? ?([\w$]+)|(?:const|let) ([\w$]+) = (?:async )?(?:function|\(|<|[\w$]+ =>)|\*?(?:\[?[#\w$.]+\]?)(?=[(<]))/
  lines.forEach((line, index) => {
    const match = opening.exec(line)
    if (!match || !line.trimEnd().endsWith('{')) return
    if (/^\s*(?:if|for|while|switch|catch|return|else|do|try|await|new|throw)\b/.test(line)) return
    const indent = match[1] ?? ''
    const end = lines.findIndex((later, at) => at > index && later.startsWith(`${indent}}`))
    if (end > index) found.push([line.trim().slice(0, 60), end - index + 1])
  })
  return found
}

test('the function ruler measures what it should', () => {
  const body = Array.from({ length: 80 }, () => '    x()')
  const lines = [
    'class A {',
    '  async run(a: string): Promise<void> {',
    ...body,
    '  }',
    '}',
    'export function f() {',
    '}',
  ]
  assert.deepEqual(
    functionLengths(lines).map(([, length]) => length),
    [82, 2],
  )
})

test('names say what a file is for', () => {
  const wrong = files.filter((file) => BANNED_NAMES.test(relative(SRC, file).split('/').at(-1) ?? ''))
  assert.deepEqual(wrong, [])
  const odd = files.filter((file) => !/^[a-z0-9]+(-[a-z0-9]+)*\.ts$/.test(file.split('/').at(-1) ?? ''))
  assert.deepEqual(odd, [], 'file names are kebab-case')
})

test('kit stays small', () => {
  const kit = files.filter((file) => roomOf(file) === 'kit')
  assert.ok(kit.length <= KIT_FILES_MAX, `kit has ${kit.length} files, at most ${KIT_FILES_MAX}`)
})

test('every room opens with its theory of operation', () => {
  const rooms = new Set(files.map(roomOf).filter((room) => room !== 'top'))
  const wrong: string[] = []
  for (const room of rooms) {
    const main = MAIN_FILE[room]
    if (!main) {
      wrong.push(`${room}: name its main file in MAIN_FILE`)
      continue
    }
    const text = readFileSync(join(SRC, room, main), 'utf8')
    const comment = /^\/\*\*[\s\S]*?\*\//.exec(text)?.[0] ?? ''
    const length = comment.split('\n').length
    if (length < 10 || length > 60) wrong.push(`src/${room}/${main}: opening comment has ${length} lines, 10 to 60`)
  }
  assert.deepEqual(wrong, [])
})

test('files that the documents name are there', () => {
  const documents = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'))
  const wrong: string[] = []
  for (const document of ['README.md', ...documents.map((name) => join('docs', name))]) {
    const text = readFileSync(join(ROOT, document), 'utf8')
    const named = [...text.matchAll(/`((?:src|test|docs|fixtures|bench|scripts|systemd)\/[\w./-]+)`/g)]
    // A room's file without its ending: `http/router`.
    const short = [...text.matchAll(new RegExp(`\`((?:${Object.keys(MAY_IMPORT).join('|')})/[a-z][a-z0-9/-]*)\``, 'g'))]
    const paths = [...named.map(([, path = '']) => path), ...short.map(([, path = '']) => join('src', path))]
    for (const path of paths) {
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

test('only the store opens SQLite', () => {
  const wrong = files.filter((file) => {
    const text = readFileSync(file, 'utf8')
    return /from 'node:sqlite'/.test(text) && roomOf(file) !== 'store'
  })
  assert.deepEqual(wrong, [])
})
