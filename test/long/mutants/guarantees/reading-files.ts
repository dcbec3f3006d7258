/** Mutants of "Reading files" and "Node metadata". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '`cat` and `readat` announce their length',
    before: 'contentLength: range.end - range.start,',
    after: '',
    test: 'test/host/files/content-serving.test.ts',
  },
  {
    promise: "Nothing outside the allocation's directory is opened",
    before: 'if (this.#fds.length === 1) throw escapes()',
    after: 'if (this.#fds.length === 0) throw escapes()',
    test: 'test/host/files/beneath.test.ts',
  },
  {
    promise: "No content below a task's `secrets/` or `private/`",
    before: 'const PROTECTED = /^(secrets|private)$/i',
    after: 'const PROTECTED = /^(secrets|private)$/',
    test: 'test/host/files/beneath.test.ts',
  },
  {
    promise: 'A file with several hard links is refused (403)',
    before: 'return stat.nlink > 1n && new',
    after: 'return stat.nlink > 2n && new',
    test: 'test/host/files/beneath.test.ts',
  },
  {
    promise: 'a check of 1,000 directory entries cannot rule out that one of the links is a secret',
    before: 'if (this.#left-- <= 0) throw',
    after: 'if (this.#left-- === Number.NEGATIVE_INFINITY) throw',
    test: 'test/attacks/crowded-secrets.test.ts',
  },
  {
    promise: 'Pipes, sockets and devices are never opened.',
    before: 'if (!found.stat.isFile()) {\n    const why',
    after: 'if (found.stat.isDirectory()) {\n    const why',
    test: 'test/host/files/beneath.test.ts',
  },
  {
    promise: 'A change is durable before it is acknowledged, and is applied completely or not at all',
    before: 'this.#content = next\n  }\n}\n\nfunction noSpace',
    after: '}\n}\n\nfunction noSpace',
    test: 'test/host/node/state.test.ts',
  },
  {
    promise: 'A full disk refuses the change and keeps the old state',
    before: 'if (error instanceof RenamedButNotSynced) {\n        await writeDurably',
    after: 'if (error instanceof TypeError) {\n        await writeDurably',
    test: 'test/host/node/state.test.ts',
  },
  {
    promise: 'A key that was unset stays unset after restarts',
    before: 'return mergeMeta(current, patch, (key) => this.#static.has(key))',
    after: 'return mergeMeta(current, patch, () => false)',
    test: 'test/host/node/metadata.test.ts',
  },
]
