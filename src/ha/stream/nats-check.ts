/**
 * Checks that the NATS servers sync each message before they acknowledge it. NATS reports that to its system account only, so the
 * configuration of NATS exports the request to the account of outpost (`systemd/nats/nats-server.conf`).
 */
import type { NatsConnection } from '@nats-io/transport-node'
import * as v from 'valibot'
import { Fault, messageOf } from '../../platform/errors.ts'

/** Time for the responses of all NATS servers. */
const COLLECT_MS = 700
/** Silence after which no further response is expected. */
const STALL_MS = 250
const HOW = 'see "NATS servers" in docs/operating/ha.md'

const ANSWER = v.object({
  server: v.object({ name: v.string() }),
  statsz: v.object({
    jetstream: v.optional(v.object({ config: v.optional(v.object({ sync_always: v.optional(v.boolean()) })) })),
  }),
})

/** `subject`: the imported request for the state of all NATS servers. `names`: those of the stream. Rejects with a Fault that says what to change. A server that does not respond is not checked. */
export async function requireSync(
  connection: NatsConnection,
  subject: string,
  names: readonly string[],
): Promise<void> {
  const answers = await statesOf(connection, subject)
  const unsynced = answers.filter(({ name, isSynced }) => !isSynced && (names.length === 0 || names.includes(name)))
  if (unsynced.length === 0) return
  const list = unsynced.map(({ name }) => name).join(', ')
  throw new Fault(
    `NATS loses acknowledged messages in a power failure: set jetstream { sync_interval: always } on ${list} and restart it; ${HOW}`,
  )
}

async function statesOf(
  connection: NatsConnection,
  subject: string,
): Promise<{ readonly name: string; readonly isSynced: boolean }[]> {
  const states: { name: string; isSynced: boolean }[] = []
  try {
    const answers = await connection.requestMany(subject, '', {
      strategy: 'stall',
      stall: STALL_MS,
      maxWait: COLLECT_MS,
    })
    for await (const answer of answers) {
      const parsed = v.safeParse(ANSWER, answer.json())
      if (!parsed.success) continue
      const { server, statsz } = parsed.output
      states.push({ name: server.name, isSynced: statsz.jetstream?.config?.sync_always ?? false })
    }
  } catch (error) {
    throw notExported(subject, messageOf(error))
  }
  if (states.length === 0) throw notExported(subject, 'no answer')
  return states
}

function notExported(subject: string, reason: string): Fault {
  return new Fault(
    `cannot check that NATS syncs each message (sync_interval: always): the account of outpost must import $SYS.REQ.SERVER.PING.STATSZ ` +
      `as ${subject} (${reason}); ${HOW}`,
  )
}
