/** Mutants of "An operator of NATS or a server key, with high availability". */
import type { Exemption, Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: '| reads the stream, or the disk of a NATS server |',
    before: 'internal: { ...order.internal },\n    }\n    const pathHash = this.hashOf(path)',
    after: 'internal: { ...order.internal },\n    }\n    const pathHash = path',
    test: 'test/secrets/leases/leases.test.ts',
    testName: 'the paths of entries reveal nothing',
  },
  {
    promise: '| publishes a group that deletes entries, restores old ones or adds new ones',
    before: 'if (!isDone || !finish?.()) {',
    after: 'if (!isDone) {\n        finish?.()',
    test: 'test/daemon/standby/standby-reads.test.ts',
    testName: 'a forged group',
  },
  {
    promise: '| publishes a group that deletes entries, restores old ones or adds new ones',
    before: 'return puts.some(({ path }) => isBound(path)) || deletes.some(isBound)',
    after: 'return puts.some(({ path }) => isBound(path))',
    test: 'test/daemon/standby/standby-reads.test.ts',
    testName: 'a forged group',
  },
  {
    promise: '| publishes other bytes |',
    before: "throw new Error('the commit stream has a message of another version')\n    if (!read) return undefined",
    after:
      "throw new Error('the commit stream has a message of another version')\n    if (!read) throw new Error('no part')",
    test: 'test/ha/ha-server.test.ts',
    testName: 'members ignore what is not a message',
  },
  {
    promise: '| writes the lease |',
    before: 'expect: { lastSequence: last },',
    after: '',
    test: 'test/ha/ha-server.test.ts',
    testName: 'the stream refuses a group of an earlier term',
  },
  {
    promise: '| writes the lease |',
    before: 'if (holder?.serverId !== this.#options.self().serverId || holder.isReleased) this.#drop()',
    after: 'if (holder?.isReleased) this.#drop()',
    test: 'test/ha/lease.test.ts',
    testName: 'that another server has acquired',
  },
  {
    promise: '| responds to a member that copies entries |',
    before: 'addQueued(store, set, head.counter)\n  if (set.fits(head)) return',
    after: 'addQueued(store, set, head.counter)\n  if (head.counter > 0) return',
    test: 'test/daemon/standby/standby-reads.test.ts',
    testName: 'a forged group',
  },
  {
    promise: '| trims the stream (`max_msgs`), by a server',
    before: "    'STREAM.LEADER.STEPDOWN',\n",
    after: "    'STREAM.LEADER.STEPDOWN',\n    'STREAM.PURGE',\n",
    test: 'test/system/nats-permissions.test.ts',
    testName: 'the key of a member|a server may do',
  },
  {
    promise: '| trims the stream (`max_msgs`), by a server',
    before: '...(config.deny_delete && config.deny_purge\n',
    after: '...(config.deny_delete || config.deny_purge\n',
    test: 'test/ha/ha-server.test.ts',
    testName: 'a stream from which messages can be deleted',
  },
  {
    promise: '| deletes the stream, as a NATS operator |',
    before: 'if (`${this.name} ${created}` !== this.identity)',
    after: 'if (!`${this.name} ${created}`.startsWith(this.name))',
    test: 'test/ha/ha-server.test.ts',
    testName: 'a stream that was deleted',
  },
  {
    promise: "| a worker host's key, or that of a server with `secrets = false` |",
    before: "...(role === 'edge' ? [] : haPublished(region)),",
    after: '...haPublished(region),',
    test: 'test/cluster/nats/permissions.test.ts',
  },
  {
    promise: "| a worker host's key, or that of a server with `secrets = false` |",
    before: "...(role === 'edge' ? [] : [new HaSubjects(region).all]),",
    after: 'new HaSubjects(region).all,',
    test: 'test/cluster/nats/permissions.test.ts',
  },
]

export const EXEMPTIONS: readonly Exemption[] = [
  {
    promise: "| responds to a standby's query for the newest row |",
    reason:
      'the answer is two numbers: the entries are those of the standby, which the mutants of "publishes a group that deletes entries" change',
  },
]
