/** Mutants of "Leases". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '**What was told is there.** A lease and what its engine has noted are durable in one commit',
    before: 'const raw = this.#indexOf(lease).map(emptyPut)\n    return { lease, part',
    after: 'const raw = this.#indexOf(lease).slice(1).map(emptyPut)\n    return { lease, part',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: 'A lease is taken back once',
    before: 'let attempt = this.#underWay.get(hash)\n    if (!attempt) {',
    after: "let attempt = this.#underWay.get(hash)\n    if (attempt === undefined || hash !== '') {",
    test: 'test/secrets/lease-races.test.ts',
  },
  {
    promise: '**A mount that is disabled** keeps its data until everything that it gave out is taken back',
    before: 'const failed = await this.#revokeEach(page.map(({ hash }) => hash))',
    after: 'await this.#revokeEach(page.map(({ hash }) => hash))\n      const failed = 0',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: '**It ends** by its time',
    before: 'return !lease || dueAtMs(lease) <= expiryTimeMs',
    after: 'return !lease || dueAtMs(lease) < expiryTimeMs - 3_600_000',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: '**Once begun, a revocation ends.**',
    before: 'await this.#marks.add({ before: lease, marked })',
    after: '',
    test: 'test/secrets/lease-races.test.ts',
  },
  {
    promise: 'is not renewed, and the next process goes on with it',
    before: 'if (!lease || revocation.isUnderWay(hash)) throw',
    after: 'if (!lease) throw',
    test: 'test/secrets/lease-races.test.ts',
  },
  {
    promise: '**What cannot be taken back** is tried again for ever',
    before: 'const attempts = (pending.revocation?.attempts ?? 0) + 1',
    after: 'const attempts = 1',
    test: 'test/secrets/leases/leases.test.ts',
  },
  {
    promise: 'A start reads none of the leases',
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
    promise: "The ID of a token's lease has a keyed hash of the token",
    before: 'return entry && entry.path === path && isLease(entry) ? entry : undefined',
    after: 'return entry && isLease(entry) ? entry : undefined',
    test: 'test/secrets/leases/token-leases.test.ts',
  },
]
