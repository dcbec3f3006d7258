/** The first message of a term in the commit stream, after which the stream refuses every group of an earlier term. */
import type { HaServerOptions } from './ha-options.ts'
import type { OpenParts } from './open-parts.ts'
import { emptyGroup } from './stream-follower.ts'
import { PublishRefused, publishMessage } from './stream/commit-stream.ts'
import { positionOf, type StreamCommitLog } from './stream/stream-commit-log.ts'

type TermServer = Pick<HaServerOptions, 'store' | 'name' | 'serverId'>

export interface BeginTermOptions {
  readonly log: StreamCommitLog
  /** Aborted when the term ends. */
  readonly signal: AbortSignal
  /** Repeats a request to NATS that fails. */
  readonly retried: <T>(request: () => Promise<T>) => Promise<T>
}

/** Applies the whole stream and publishes the term as its last message. */
export async function beginTerm(server: TermServer, parts: OpenParts, options: BeginTermOptions): Promise<void> {
  const { store, name, serverId } = server
  const { lease, stream } = parts
  const { log, retried, signal } = options
  const { term } = lease
  for (;;) {
    const { last } = await retried(() => stream.bounds())
    if (last === 0) await publishBase(server, parts, signal)
    else await parts.follower.catchUp(last, retried)
    const at = last === 0 ? 1 : last
    const position = positionOf(store.position())
    const message = { kind: 'term', term, server: `${name} ${serverId}`, position } as const
    try {
      const sequence = await publishMessage(stream, message, at, signal)
      const nextRow = position.sequence + 1
      await store.member.applyLogged([emptyGroup(stream.identity, sequence, nextRow)])
      log.begin({ term, stream, last: sequence, nextRow })
      return
    } catch (error) {
      // A late message of the last active server: apply it first.
      if (!(error instanceof PublishRefused) || lease.term !== term) throw error
    }
  }
}

async function publishBase({ store }: TermServer, { stream }: OpenParts, signal: AbortSignal): Promise<void> {
  const position = positionOf(store.position())
  const base = { kind: 'base', clusterId: store.clusterId, position, role: store.member.roleDigest } as const
  await publishMessage(stream, base, 0, signal)
  await store.member.applyLogged([emptyGroup(stream.identity, 1, position.sequence + 1)])
}
