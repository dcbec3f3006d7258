/** Mutants of "Servers". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'A list of any length, filtered or not, is sent in slices',
    before: 'if (++visited % BATCH !== 0) continue',
    after: 'visited++\n    continue',
    test: 'test/cluster/api/listing.test.ts',
  },
  {
    promise: 'A blocking query (`index`) returns when the queried data changes',
    before: 'if (input.index > 0) {\n    const waitMs',
    after: 'if (input.index > 1e9) {\n    const waitMs',
    test: 'test/cluster/api/nodes-operations.test.ts',
  },
  {
    promise: 'When a server stops, it responds to a long poll immediately',
    before: 'const signals = call.draining ? [call.signal, call.draining] : [call.signal]',
    after: 'const signals = [call.signal]',
    test: 'test/system/daemon.test.ts',
    testName: 'answers long polls at once',
  },
  {
    promise: 'The event stream omits no event that its caller may see',
    before: 'return this.#kept.filter((change) => change.index >= index)',
    after: 'return this.#kept.filter((change) => change.index > index)',
    test: 'test/cluster/api/roster-operations.test.ts',
  },
  {
    promise: 'A caller that falls 10,000 events behind is disconnected and can detect it',
    before: 'if (queue.length >= QUEUED_MAX) isBehind = true',
    after: 'if (queue.length >= QUEUED_MAX) queue.shift()',
    test: 'test/cluster/api/roster-operations.test.ts',
  },
  {
    promise: 'The logs of a job deliver the lines of each allocation in order',
    before:
      "const last = labeler.isComplete ? lastFrame('log ended', id) : lastFrame('log failed', id, 'incomplete frame')",
    after: "const last = lastFrame('log ended', id)",
    test: 'test/cluster/api/job-logs.test.ts',
  },
  {
    promise: 'serves the nodes round-robin',
    before: 'queue.deficit -= length',
    after: '',
    test: 'test/cluster/api/byte-queue.test.ts',
  },
  {
    promise: 'The server gives up on a host that sends less than 1 MiB in ten minutes of waiting',
    before: 'if (this.#periodBytes < PERIOD_BYTES_MIN) return true',
    after: 'if (this.#periodBytes === 0) return true',
    test: 'test/cluster/rpc/node-limits.test.ts',
  },
  {
    promise: 'Time during which the client reads nothing does not count',
    before: 'const waitedMs = this.#waitedMs + (this.#waitingReads > 0 ? this.#now() - this.#waitingSinceMs : 0)',
    after: 'const waitedMs = this.#now()',
    test: 'test/cluster/rpc/node-limits.test.ts',
  },
  {
    promise: 'Objects that a token may not see appear in no list, no event and no search',
    before:
      "return (input.namespace === '*' || input.namespace === namespace) && identity.allowsNamespace(namespace, 'read-job')",
    after: "return input.namespace === '*' || input.namespace === namespace",
    test: 'test/cluster/api/roster-operations.test.ts',
  },
  {
    promise: 'Objects that a token may not see appear in no list, no event and no search',
    before: "    if (id === '') continue\n    if (found.length === MATCHES_MAX) return { found, isTruncated: true }\n",
    after: "    if (found.length === MATCHES_MAX) return { found, isTruncated: true }\n    if (id === '') continue\n",
    test: 'test/cluster/api/roster-operations.test.ts',
    testName: 'twenty visible matches',
  },
  {
    promise: 'appear in no list, no event',
    before: 'if (isVisible(record) && (!filter ||',
    after: 'if (isVisible !== undefined && (!filter ||',
    test: 'test/cluster/api/roster-operations.test.ts',
  },
]
