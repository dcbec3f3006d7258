/** Mutants of "The seal". */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**Attempts require a token.**',
    before: "if (sudo || (given !== '' && nonces.includes(given))) return",
    after: "if (sudo || nonces.includes(given) || given === '') return",
    test: 'test/attacks/unauthenticated-rekey.test.ts',
  },
  {
    promise: '**A PGP key costs the server only a thread.**',
    before: 'if (key.users.length > USER_IDS_MAX) refuse(',
    after: 'if (key.users.length > 10 * USER_IDS_MAX) refuse(',
    test: 'test/attacks/hostile-pgp-key.test.ts',
  },
  {
    promise: '**Each change of the keys is atomic.**',
    before: 'const raw = [entries.configEntry(next), entries.rootKeyEntry(rootKey, staticKey.key)]',
    after: 'const raw = [entries.configEntry(next)]',
    test: 'test/storage/seal/static-key.test.ts',
  },
  {
    promise: 'A rekey that was interrupted between its commit and its response leaves both',
    before: 'const kept = isShared && before ? { before:',
    after: 'const kept = isShared && !before ? { before:',
    test: 'test/storage/seal/rekey.test.ts',
  },
  {
    promise: '**Cost of a lost key share.** None while as many shares as the threshold remain',
    before: 'if (fitting.length < scheme.threshold) return []',
    after: 'if (fitting.length <= scheme.threshold) return []',
    test: 'test/storage/seal/seal.test.ts',
  },
  {
    promise: 'Otherwise only the new shares work, and no holder has them',
    before: 'const withBefore = this.#responseTimer === undefined',
    after: 'const withBefore = true',
    test: 'test/storage/seal/seal.test.ts',
  },
  {
    promise: '**A full disk** refuses init and changes nothing',
    before: 'else if (migration === undefined) await this.#keys.confirm(verified).catch(() => undefined)',
    after: 'else if (migration === undefined) await this.#keys.confirm(verified)',
    test: 'test/storage/seal/seal.test.ts',
  },
  {
    promise: '**Keys are on disk only encrypted.**',
    before: 'for (const share of this.#shares) share.fill(0)',
    after: '',
    test: 'test/storage/seal/seal.test.ts',
  },
  {
    promise: '**Wrong shares** are reported as a set',
    before: "if (!verified && this.#shares.length < enough) return 'more'",
    after: "if (!verified && this.#shares.length < enough - 1) return 'more'",
    test: 'test/storage/seal/seal.test.ts',
  },
  {
    promise: 'An attempt is canceled with its nonce or with sudo',
    before:
      "    if (this.#attempt !== attempt) throw invalid('root generation aborted: it was canceled')\n    await commit()\n",
    after:
      "    await commit()\n    if (this.#attempt !== attempt) throw invalid('root generation aborted: it was canceled')\n",
    test: 'test/storage/seal/token-generation.test.ts',
    testName: 'before its token is encoded',
  },
]

export const EXEMPTIONS: readonly Exemption[] = []
