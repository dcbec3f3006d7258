/** Mutants of "Leases". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: "**Returned leases are durable.** A lease and its engine's record are durable in one commit",
    before: 'const raw = this.#indexOf(lease).map(emptyPut)\n    return { lease, part',
    after: 'const raw = this.#indexOf(lease).slice(1).map(emptyPut)\n    return { lease, part',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: 'A lease is revoked once',
    before: 'let attempt = this.#underWay.get(hash)\n    if (!attempt) {',
    after: "let attempt = this.#underWay.get(hash)\n    if (attempt === undefined || hash !== '') {",
    test: 'test/secrets/lease-races.test.ts',
  },
  {
    promise: '**A disabled mount** keeps its data until everything that it issued is revoked',
    before: 'const failed = await this.#revokeEach(page.map(({ hash }) => hash))',
    after: 'await this.#revokeEach(page.map(({ hash }) => hash))\n      const failed = 0',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: '**Expiry.** A lease ends when it expires',
    before: 'return !lease || dueAtMs(lease) <= expiryTimeMs',
    after: 'return !lease || dueAtMs(lease) < expiryTimeMs - 3_600_000',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: '**A started revocation completes.**',
    before: 'await this.#marks.add({ before: lease, marked })',
    after: '',
    test: 'test/secrets/lease-races.test.ts',
  },
  {
    promise: 'After a `kill -9` the next process continues the revocation',
    before: 'if (!lease || revocation.isUnderWay(hash)) throw',
    after: 'if (!lease) throw',
    test: 'test/secrets/lease-races.test.ts',
  },
  {
    promise: '**A failed revocation** is retried without a limit',
    before: 'const attempts = (pending.revocation?.attempts ?? 0) + 1',
    after: 'const attempts = 1',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: 'The server reads no leases at startup, regardless of their number',
    before: 'return this.storage.list(leasePaths.expiries).map((name) => name.slice(0, -1))',
    after: 'return this.storage.list(leasePaths.expiries).map((name) => name.slice(0, -1)).slice(1)',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: '**`revoke-prefix` of an auth path** ends every token',
    before: 'return entry && isLease(entry) && `${entry.path}/`.startsWith(prefix) ? [entry] : []',
    after: 'return entry && isLease(entry) && `${entry.path}/` === prefix ? [entry] : []',
    test: 'test/secrets/leases/token-leases.test.ts',
  },
  {
    promise: "The ID of a token's lease contains a keyed hash of the token",
    before: 'return entry && entry.path === path && isLease(entry) ? entry : undefined',
    after: 'return entry && isLease(entry) ? entry : undefined',
    test: 'test/secrets/leases/token-leases.test.ts',
  },
  {
    promise: '**Expiry.** A lease ends when it expires',
    before: 'const maxAtMs = Math.min(nowMs + maxTtlSeconds * 1000, untilMs ?? Number.POSITIVE_INFINITY)',
    after: 'const maxAtMs = nowMs + maxTtlSeconds * 1000',
    test: 'test/secrets/leases/leases.test.ts',
    testName: 'outlast',
  },
]
