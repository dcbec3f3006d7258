/** Mutants of "Allocations". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'New, changed and removed allocations are detected within one second',
    before: 'known.directory === version.directory && known.content === version.content',
    after: 'known.directory === version.directory',
    test: 'test/host/allocations/allocations.test.ts',
  },
  {
    promise: 'A task whose processes have exited is shown as dead',
    before: "return liveness !== 'alive' && (!known || (known.presumed && liveness === 'gone'))",
    after: "return liveness === 'presumed gone' && !known",
    test: 'test/host/allocations/allocations.test.ts',
  },
  {
    promise: 'An invalid manifest keeps the last valid state',
    before: 'entry.fault = fault\n      return\n',
    after: 'entry.fault = fault\n      entry.declared = undefined\n      return\n',
    test: 'test/host/allocations/allocations.test.ts',
  },
  {
    promise: 'Collection removes `<alloc_dir>/<uuid>` and nothing else, never through a link or into a mount',
    before: 'if ((await directory.stat()).dev !== tree.device) throw busy(name)',
    after: '',
    test: 'test/host/gc/gc.test.ts',
  },
  {
    promise: 'An interrupted collection is completed after the next start',
    before: 'if (this.#underway.has(id) || this.#stopping.signal.aborted) continue\n      const work',
    after: 'if (!this.#underway.has(id) || this.#stopping.signal.aborted) continue\n      const work',
    test: 'test/host/gc/gc.test.ts',
  },
  {
    promise: 'It signals a process only if the manifest states the start time',
    before: "if (startTicks === undefined) return 'the manifest does not contain its start time'",
    after: '',
    test: 'test/attacks/hostile-allocation-owner.test.ts',
    testName: 'without a start time',
  },
  {
    promise: 'Commands run by root trust no directory of another user',
    before: 'becomeOwner(handle)\n    const { manifest',
    after: 'const { manifest',
    test: 'test/attacks/hostile-allocation-owner.test.ts',
    testName: 'the file that root writes',
  },
  {
    promise: 'A task whose processes have exited is shown as dead',
    before: 'this.#meters.get(allocation.id)?.get(task.name)?.end()\n',
    after: '',
    test: 'test/host/stats/stats-sampler.test.ts',
    testName: 'reports as dead',
  },
]
