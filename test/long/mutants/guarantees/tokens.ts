/** Mutants of "Tokens". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**Revocation is final.**',
    before:
      'if (hasExpired(ancestor, nowMs) || !this.#isLoginValid(ancestor)) return false\n      parent = ancestor.parent',
    after: "if (hasExpired(ancestor, nowMs) || !this.#isLoginValid(ancestor)) return false\n      parent = ''",
    test: 'test/secrets/token-revoke.test.ts',
  },
  {
    promise: 'If the server is killed before it responds, either the whole tree is revoked or nothing is',
    before: 'stack.push(...revoked.map(({ hash }) => hash))',
    after: '',
    test: 'test/secrets/token-revoke.test.ts',
  },
  {
    promise: '**Rights are checked while a response lasts.**',
    before: 'if (result instanceof Refusal) return holder.end(result)',
    after: 'if (result instanceof Refusal) return',
    test: 'test/http/permission-checker.test.ts',
  },
  {
    promise: '**Uses are exact.**',
    before:
      "if (!entry || entry.usesLeft < 0 || entry.isLeaving) throw new Rejection(403, 'permission denied')\n    const use",
    after: "if (!entry) throw new Rejection(403, 'permission denied')\n    const use",
    test: 'test/secrets/token-uses.test.ts',
  },
  {
    promise: '**Lifetimes.** A lifetime of t lasts between 0.9 t and 1.12 t',
    before: 'this.#timeMs += passedMs + Math.max(-correctionMaxMs, Math.min(correctionMaxMs, missingMs))',
    after: 'this.#timeMs += passedMs + missingMs',
    test: 'test/secrets/core-clock.test.ts',
  },
  {
    promise: '**A token in a path**',
    before: "return shownHash(isSecret === true ? this.#key.digest(text, 'base64url') : this.#key.name(text))",
    after: 'return isSecret === true ? text : shownHash(this.#key.name(text))',
    test: 'test/attacks/tokens-in-paths.test.ts',
  },
  {
    promise: '**Tokens cannot be read** from the database',
    before: 'this.#hash = new KeyedHash(salt)\n    this.#areLeasesIndexed',
    after: 'this.#hash = new KeyedHash(Buffer.alloc(salt.length))\n    this.#areLeasesIndexed',
    test: 'test/secrets/token-secrecy.test.ts',
  },
  {
    promise: '**A full disk** refuses the creation of tokens',
    before: 'if (before === undefined ? value.length > MARK_BYTES :',
    after: 'if (before === undefined ? value.length > 1024 * MARK_BYTES :',
    test: 'test/attacks/full-disk.test.ts',
  },
  {
    promise: '**Lifetimes.** A lifetime of t lasts',
    before: 'explicitMaxTtlSeconds: smallerLimit(explicitMaxTtlSeconds, role.explicitMaxTtlSeconds),',
    after: 'explicitMaxTtlSeconds: role.explicitMaxTtlSeconds,',
    test: 'test/secrets/tokens/token-role.test.ts',
  },
]
