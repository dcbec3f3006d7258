/** Mutants of "Mounts" and "Key-value secrets". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**Each change is atomic.**',
    before: 'await this.#put(updated)\n    this.#options.table.attach(updated)',
    after: 'this.#options.table.attach(updated)\n    await this.#put(updated)',
    test: 'test/secrets/mounts/mount-changes.test.ts',
  },
  {
    promise: '**Disabling removes all data.** The response to disabling means',
    before: 'const entries = await storage.removeAll(dataPrefix(uuid))',
    after: 'const entries = 0',
    test: 'test/secrets/mounts/mount-changes.test.ts',
  },
  {
    promise: 'Requests in progress end first',
    before: 'await activeRequests.idle(this.#options.drainTimeoutMs ?? DRAIN_TIMEOUT_MS)',
    after: 'void activeRequests',
    test: 'test/secrets/mounts/mounts.test.ts',
  },
  {
    promise: '**Of several concurrent requests for one path** one gets it',
    before: 'return paths.find((each) => each.startsWith(path) || path.startsWith(each))',
    after: 'return paths.find((each) => each === path)',
    test: 'test/secrets/mounts/mounts.test.ts',
  },
  {
    promise: '**One commit.** A change of a secret is one commit',
    before: 'if (isNew) addName(this.secret, this.#changes, record.name)',
    after: 'if (isNew && record.current === 0) addName(this.secret, this.#changes, record.name)',
    test: 'test/engines/kv/behaviours-data.test.ts',
  },
  {
    promise: '**cas is exact.**',
    before: 'if (cas === (record?.current ?? 0)) return',
    after: 'if (cas <= (record?.current ?? 0)) return',
    test: 'test/engines/kv/concurrency.test.ts',
  },
  {
    promise: '**Long reads** do not block other requests',
    before: 'if (units < FIRST_SLICE_UNITS) continue',
    after: 'if (units >= 0) continue',
    test: 'test/engines/kv/yielding.test.ts',
  },
  {
    promise: '**Time.** A version with `delete_version_after` is readable to the millisecond before',
    before: 'return deletedAtMs !== 0 && deletedAtMs <= nowMs',
    after: 'return deletedAtMs !== 0 && deletedAtMs < nowMs',
    test: 'test/engines/kv/behaviours-versions.test.ts',
  },
  {
    promise: '**Destroyed, pruned and removed** data is in no entry',
    before: 'this.#changes.delete(this.blobPath(name, number))\n      return version.destroyed',
    after: 'return version.destroyed',
    test: 'test/engines/kv/behaviours-versions.test.ts',
  },
  {
    promise: '**Names** of secrets, their folders and `custom_metadata`',
    before: "RECORDS_PREFIX + hashedName(this.secret, 'key', name) }",
    after: 'RECORDS_PREFIX + name }',
    test: 'test/engines/kv/planted.test.ts',
  },
  {
    promise: '**Watching.** A client that resumes from its cursor receives every later commit',
    before: 'const unknown = events.filter((event, at) => event.sequence !== sequence || at >= count)',
    after: 'const unknown = events.filter((event, at) => event.sequence !== sequence || at > count)',
    test: 'test/engines/kv/watch-stream.test.ts',
  },
  {
    promise: 'No client receives, or is woken by, changes that its policies do not let it read',
    before: "this.#isReadable(name) && (change !== 'metadata' || mayReadMetadata(call, name))",
    after: "name.startsWith(folder) && (change !== 'metadata' || mayReadMetadata(call, name))",
    test: 'test/engines/kv/watch.test.ts',
  },
  {
    promise: '**An upgrade from version 1** converts nothing',
    before: 'current: 1, versions: new Map([[1, version]]) }',
    after: 'current: 2, versions: new Map([[2, version]]) }',
    test: 'test/engines/kv/behaviours-plain.test.ts',
  },
]
