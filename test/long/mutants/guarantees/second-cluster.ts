/** Mutants of "Disaster recovery". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: "**A secondary's history is a prefix of its primary's**",
    before: 'const isNext = row.sequence === before.sequence + 1 && row.epoch >= before.epoch',
    after: 'const isNext = row.sequence >= before.sequence + 1',
    test: 'test/storage/store/replica.test.ts',
  },
  {
    promise: '**What can be lost** with a primary',
    before: 'if (progress.acknowledged >= sequence) return undefined',
    after: 'if (progress.acknowledged >= sequence - 1) return undefined',
    test: 'test/dr/primary/sync.test.ts',
  },
  {
    promise: 'A commit that still waits when its primary is replaced, demoted or stopped is refused',
    before: 'if (lost) for (const waiter of this.#waiters.splice(0)) waiter.reject(lost)',
    after: '',
    test: 'test/dr/primary/sync.test.ts',
  },
  {
    promise: 'An acknowledgement counts only with a proof under a key that only unsealed members of the set have',
    before: "return code.length === proof.length && timingSafeEqual(code, proof) ? 'valid' : 'invalid'",
    after: "return code.length === proof.length ? 'valid' : 'invalid'",
    test: 'test/dr/link/membership.test.ts',
  },
  {
    promise: '**A planned change of roles loses no acknowledged write**',
    before: 'await untilComplete(context, primary, secondaryId)',
    after: '',
    test: 'test/dr/primary/demotion.test.ts',
  },
  {
    promise: '**Data is wiped only after all checks**',
    before: 'const joined = await joinPrimary(link, upstream, context, true).catch(failed)',
    after: 'const joined = await joinPrimary(link, upstream, context, true).catch(() => ({ atMs: nowMs(), bytes: 0 }))',
    test: 'test/dr/link/activation.test.ts',
  },
  {
    promise: '**One primary.** A promotion raises the epoch',
    before: "await store.setRole('fenced', epoch)\n    const deposed",
    after: 'const deposed',
    test: 'test/dr/primary/fencing.test.ts',
  },
  {
    promise: 'or until `fence_after`',
    before: "if (silenceMs > settings.fenceAfterMs && store.role === 'own') {",
    after: "if (silenceMs > 1000 * settings.fenceAfterMs && store.role === 'own') {",
    test: 'test/dr/primary/fencing.test.ts',
  },
  {
    promise: '**A secondary decrypts nothing.**',
    before: 'if (this.#isSecondary()) return this.#barrier.standby.hold(rootKey)',
    after: '',
    test: 'test/system/dr-keys.test.ts',
  },
  {
    promise: '**Tokens and leases survive a failover**',
    before:
      "await this.#attempt('opening the secrets core after the promotion failed', () =>\n      this.#context.transition.toPrimary(),\n    )",
    after: '',
    test: 'test/dr/state/failover.test.ts',
  },
  {
    promise: '**Damage is located and repaired**',
    before: 'if (puts.some(({ sequence }) => sequence > asOf)) throw new MalformedBatch(',
    after: 'if (puts.some(({ sequence }) => sequence === asOf)) throw new MalformedBatch(',
    test: 'test/dr/secondary/repair.test.ts',
  },
  {
    promise: '**A drill changes nothing but its copy**',
    before: 'const foreign = names.find((each) => !each.isFile() || !each.name.startsWith(COPY_NAME))',
    after: 'const foreign = names.find((each) => !each.isFile())',
    test: 'test/system/dr-drill-ends.test.ts',
  },
  {
    promise: '**Compression**: listings of a comparison',
    before: 'const COMPRESSED_BYTES_MIN = 1024',
    after: 'const COMPRESSED_BYTES_MIN = 1024 * 1024 * 1024',
    test: 'test/dr/link/compression.test.ts',
  },
  {
    promise: '**Nothing is trusted unverified**',
    before: 'set.setCounter(head.counter)\n    if (!set.fits(head)) throw new EntrySetMismatch()\n    return set',
    after: 'set.setCounter(head.counter)\n    return set',
    test: 'test/attacks/rolled-back-secondary.test.ts',
  },
  {
    promise: '**The operation token** is stored as a MAC under a key of the barrier',
    before: 'if (generation === operationToken.generation) return undefined',
    after: "if (generation !== '') return undefined",
    test: 'test/attacks/rolled-back-secondary.test.ts',
  },
  {
    promise: '**A reindex of a secondary** also compares its tree',
    before: 'await this.#check()\n      this.#secondary?.scheduleRepair(true)',
    after: 'await this.#check()',
    test: 'test/dr/secondary/repair.test.ts',
  },
  {
    promise: '**What can be lost** with a primary',
    before: 'isCaughtUp: synced.every((one) => this.#connected.get(one.id)?.isCaughtUp),',
    after: 'isCaughtUp: synced.some((one) => this.#connected.get(one.id)?.isCaughtUp === true),',
    test: 'test/dr/primary/sync.test.ts',
    testName: 'last of two',
  },
  {
    promise: '**One primary.** A promotion raises the epoch',
    before: 'if (epoch < store.epoch) return\n      this.#requirePrimary()',
    after: 'if (epoch <= store.epoch) return\n      this.#requirePrimary()',
    test: 'test/dr/primary/fencing.test.ts',
  },
  {
    promise: "**A secondary's history is a prefix of its primary's**",
    before:
      "  if (differing.size > 0) await new EntryCopier({ ...options, write }).run(differing)\n  options.signal.throwIfAborted()\n  // Everything was compared or read before this position.\n  const { position } = await options.link.call('Ping', {}, options.answerMs)\n",
    after:
      "  // Everything was compared or read before this position.\n  const { position } = await options.link.call('Ping', {}, options.answerMs)\n  if (differing.size > 0) await new EntryCopier({ ...options, write }).run(differing)\n  options.signal.throwIfAborted()\n",
    test: 'test/dr/link/link.test.ts',
    testName: 'last entry',
  },
  {
    promise: '**One primary.** A promotion raises the epoch',
    before: 'const announced = this.#secondary?.lastHeartbeat?.epoch ?? 0',
    after: 'const announced = this.#secondary?.lastHeartbeat?.position.epoch ?? 0',
    test: 'test/dr/state/failover.test.ts',
    testName: 'above the epoch',
  },
]
