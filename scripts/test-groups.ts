/**
 * Which test files share a process. To start Node and to load the rooms that a file imports takes 0.2 to 0.4 s of CPU, more
 * than most files take for their tests; small files of one folder therefore run one after the other in one process, a
 * *group*. The reporter shows their tests as before, and each failure with the file that it is in.
 *
 * A file has a process of its own when it is chosen alone, when its folder is not among those that share, when it
 * takes long, or when it is listed here because it looks at its process or changes it.
 */
import { accessSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'

/**
 * Below `test/`: folders of files that test in their own process, through a core, a store or a room, or processes of the
 * program that know nothing of theirs; and single files.
 */
const SHARING = [
  'agent',
  'attacks/announced-address.test.ts',
  'attacks/crowded-secrets.test.ts',
  'attacks/damaged-log.test.ts',
  'attacks/guessed-codes.test.ts',
  'attacks/policy-names.test.ts',
  'attacks/replayed-assertion.test.ts',
  'attacks/second-factor.test.ts',
  'attacks/short-wrapping.test.ts',
  'attacks/walked-around-rights.test.ts',
  'barrier',
  'cli',
  'cluster',
  'compat',
  'config',
  'engines',
  'host',
  'http',
  'kit',
  'replication',
  'secrets',
  'store',
]

/** Files below those folders that do not share, and why. */
const ALONE: Readonly<Record<string, string>> = {
  'barrier/freed-memory.test.ts': 'searches the memory of its process',
  'cluster/announce.test.ts': 'shortens the times of clusters in its process',
  'cluster/authorizer.test.ts': 'counts comparisons in its process',
  'cluster/forward.test.ts': 'shortens the times of clusters in its process',
  'cluster/job-logs.test.ts': 'shortens the times of clusters in its process',
  'cluster/lost.test.ts': 'shortens the times of clusters in its process',
  'cluster/nats-link.test.ts': 'shortens the times of clusters in its process',
  'cluster/nats-login.test.ts': 'shortens the times of clusters in its process',
  'engines/hash-threads.test.ts': 'looks at the threads of its process',
  'engines/kv/watch-stream.test.ts': 'measures the memory of its process',
  'host/allocations.test.ts': 'measures the memory of its process',
  'host/beneath.test.ts': 'looks at the descriptors of its process',
  'host/line-filter.test.ts': 'measures the memory of its process',
  'host/line-matchers.test.ts': 'looks at the threads of its process',
  'host/log-position.test.ts': 'changes the time zone of its process',
  'host/many-logs.test.ts': 'counts what its process reads',
  'host/stats-host.test.ts': 'counts the open files of its process',
  'host/stats-sampler.test.ts': 'counts the open files of its process',
  'host/stream-ends.test.ts': 'looks at the descriptors of its process',
  'http/list-verb.test.ts': 'counts the warnings of its process',
  'http/messages.test.ts': 'measures the memory of its process',
  'kit/log-once.test.ts': 'replaces the clock of its process',
  'secrets/token-uses-unwritten.test.ts': 'counts the unhandled rejections of its process',
  'store/writer-threads.test.ts': 'looks at the threads that wait for a store',
}

/** A file that takes longer than this has a process of its own, so that the last ones end together. */
const FILE_MS_MAX = 8000
const GROUP_MS_MAX = 20_000

/** Files by what Node runs: itself for one that is alone, a module that imports them for a group. */
export type Groups = ReadonlyMap<string, readonly string[]>

/** `supposedMs`: what a file takes, about. Writes the modules of groups, which stay until this process ends. */
export function groupsOf(root: string, files: readonly string[], supposedMs: (file: string) => number): Groups {
  // A file that was renamed would share without a word.
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

function sharedFolder(root: string, file: string): string | undefined {
  const path = relative(join(root, 'test'), file)
  const [folder = ''] = path.split('/')
  return (SHARING.includes(folder) || SHARING.includes(path)) && !(path in ALONE) ? folder : undefined
}

/** In order, each of at most `GROUP_MS_MAX`. */
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
