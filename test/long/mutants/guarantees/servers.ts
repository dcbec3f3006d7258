/** Mutants of "Servers". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'A list of any length, filtered or not, is sent in slices',
    before: 'if (++looked % BATCH !== 0) continue',
    after: 'looked++\n    continue',
    test: 'test/cluster/api/listing.test.ts',
  },
  {
    promise: 'A blocking query (`index`) returns when the queried data changes',
    before: 'if (input.index > 0) {\n    const waitMs',
    after: 'if (input.index > 1e9) {\n    const waitMs',
    test: 'test/cluster/api/nodes-operations.test.ts',
  },
  {
    promise: 'When a server stops, it answers a long poll immediately',
    before: 'const signals = call.draining ? [call.signal, call.draining] : [call.signal]',
    after: 'const signals = [call.signal]',
    test: 'test/system/daemon.test.ts',
    testName: 'answers long polls at once',
  },
  {
    promise: 'The event stream omits no event that its caller may see',
    before: 'return this.#kept.filter((change) => change.index >= index)',
    after: 'return this.#kept.filter((change) => change.index > index)',
    test: 'test/cluster/fleet-operations.test.ts',
  },
  {
    promise: 'A caller that falls 10,000 events behind is disconnected and can detect it',
    before: 'if (waiting.length >= WAITING_MAX) isBehind = true',
    after: 'if (waiting.length >= WAITING_MAX) waiting.shift()',
    test: 'test/cluster/fleet-operations.test.ts',
  },
  {
    promise: 'The logs of a job deliver the lines of each allocation in order',
    before: "const last = labels.isWhole ? eventFrame('log ended', id) : eventFrame('log failed', id, 'cut short')",
    after: "const last = eventFrame('log ended', id)",
    test: 'test/cluster/api/job-logs.test.ts',
  },
  {
    promise: 'serves the nodes round-robin',
    before: 'queue.deficit -= chunk.length',
    after: '',
    test: 'test/cluster/api/round-robin-queue.test.ts',
  },
  {
    promise: 'The server gives up a host that sends less than 1 MiB in ten minutes of waiting',
    before: 'if (this.#bytes < BYTES_MIN) return true',
    after: 'if (this.#bytes === 0) return true',
    test: 'test/cluster/rpc/pace.test.ts',
  },
  {
    promise: 'The time in which the client reads nothing does not count',
    before: 'const waitedMs = this.#waitedMs + (this.#waiting > 0 ? this.#now() - this.#sinceMs : 0)',
    after: 'const waitedMs = this.#now()',
    test: 'test/cluster/rpc/pace.test.ts',
  },
  {
    promise: 'Objects that a token may not see are in no list, no event and no search',
    before:
      "return (input.namespace === '*' || input.namespace === namespace) && identity.allowsNamespace(namespace, 'read-job')",
    after: "return input.namespace === '*' || input.namespace === namespace",
    test: 'test/cluster/fleet-operations.test.ts',
  },
  {
    promise: 'are in no list, no event',
    before: 'if (isSeen(record) && (!filter ||',
    after: 'if (isSeen !== undefined && (!filter ||',
    test: 'test/cluster/fleet-operations.test.ts',
  },
]
