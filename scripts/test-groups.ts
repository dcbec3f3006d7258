/**
 * Groups of test files that share a process. Starting Node and loading the imports of a file takes 0.2 to 0.4 s of CPU,
 * more than the tests of most files; small files of one folder therefore run one after another in one process, a
 * *group*. The reporter shows their tests as before, and each failure with its file. A file has a separate process if it
 * is the only chosen one, takes long, or is listed here because it observes or changes its process.
 */
import { accessSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'

/**
 * Modules that are imported first and set the times of clusters for their process and its children. Files with the same
 * times share processes.
 */
const TIMES = ['short-pace', 'short-timings', 'short-ha-timings']

/** Files below `test/` with a separate process, and the reason. */
const ALONE: Readonly<Record<string, string>> = {
  'attacks/hostile-pgp-key.test.ts': 'measures the CPU of its process',
  'attacks/nats-away.test.ts': 'sets times of clusters in its process',
  'storage/barrier/forced-gc.test.ts': 'searches the memory of its process',
  'cluster/trust/authorizer.test.ts': 'counts comparisons in its process',
  'auth/hash-threads.test.ts': 'looks at the threads of its process',
  'engines/kv/watch-stream.test.ts': 'measures the memory of its process',
  'host/allocations/allocations.test.ts': 'measures the memory of its process',
  'host/files/beneath.test.ts': 'looks at the descriptors of its process',
  'host/logs/search/line-filter.test.ts': 'measures the memory of its process',
  'host/logs/search/line-matchers.test.ts': 'looks at the threads of its process',
  'host/logs/locate/log-position.test.ts': 'changes the time zone of its process',
  'host/logs/locate/many-logs.test.ts': 'counts what its process reads',
  'host/stats/stats-host.test.ts': 'counts the open files of its process',
  'host/stats/stats-sampler.test.ts': 'counts the open files of its process',
  'host/logs/stream-ends.test.ts': 'looks at the descriptors of its process',
  'http/list-verb.test.ts': 'counts the warnings of its process',
  'http/messages.test.ts': 'measures the memory of its process',
  'platform/log-once.test.ts': 'replaces the clock of its process',
  'secrets/token-uses-unwritten.test.ts': 'counts the unhandled rejections of its process',
  'storage/store/store-worker-cache.test.ts': 'counts the idle workers of the process',
}

/** A file that takes longer has a separate process, so that the last ones end at about the same time. */
const FILE_MS_MAX = 30_000
const GROUP_MS_MAX = 40_000

/** Files by the module that Node runs: the file itself if it is alone, otherwise a module that imports the group. */
export type Groups = ReadonlyMap<string, readonly string[]>

/** `supposedMs`: the expected duration of a file. Writes the modules of groups, which exist until this process ends. */
export function groupsOf(root: string, files: readonly string[], supposedMs: (file: string) => number): Groups {
  // Fails for a renamed file, which would silently share a process otherwise.
  for (const name of Object.keys(ALONE)) accessSync(join(root, 'test', name))
  const folder = mkdtempSync(join(tmpdir(), 'outpost-test-groups-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const groups = new Map<string, readonly string[]>()
  const shared = Map.groupBy(files, (file) => (supposedMs(file) > FILE_MS_MAX ? undefined : sharedFolder(root, file)))
  for (const file of shared.get(undefined) ?? []) groups.set(file, [file])
  shared.delete(undefined)
  for (const [name, members] of shared) {
    for (const [at, group] of parts(members, supposedMs).entries()) {
      const [only, ...others] = group
      if (only !== undefined && others.length === 0) groups.set(only, group)
      else groups.set(written(join(folder, `${name}-${at + 1}.test.mjs`), group), group)
    }
  }
  return groups
}

/** The name of the group, or undefined for a file that runs alone. */
function sharedFolder(root: string, file: string): string | undefined {
  const path = relative(join(root, 'test'), file)
  if (path in ALONE) return undefined
  const times = timesOf(file)
  const folder = path.includes('/') ? path.slice(0, path.indexOf('/')) : 'test'
  return [folder, times].filter((part) => part !== undefined).join('-')
}

/** The module of times that a file imports first, if any. */
export function timesOf(file: string): string | undefined {
  const text = readFileSync(file, 'utf8')
  return TIMES.find((name) => text.includes(`/${name}.ts'`))
}

/** Splits in order, each group at most `GROUP_MS_MAX`. */
function parts(files: readonly string[], supposedMs: (file: string) => number): string[][] {
  const groups: string[][] = []
  let leftMs = 0
  for (const file of files) {
    const ms = supposedMs(file)
    if (ms > leftMs) {
      groups.push([])
      leftMs = GROUP_MS_MAX
    }
    groups.at(-1)?.push(file)
    leftMs -= ms
  }
  return groups
}

function written(path: string, files: readonly string[]): string {
  writeFileSync(path, files.map((file) => `import ${JSON.stringify(pathToFileURL(file).href)}\n`).join(''))
  return path
}
