/** The newest row of the active server, which a standby requests before it answers a read. */
import type { NatsConnection } from '@nats-io/transport-node'
import { HaSubjects } from '../cluster/nats/ha-subjects.ts'

const ANSWER_MS = 500

export interface NewestRow {
  readonly connection: NatsConnection
  readonly region: string
  readonly serverId: string
  /** Sequence of the newest row, which is that of the last acknowledged commit or later. */
  readonly row: () => number
  readonly isServing: () => boolean
}

export function serveNewestRow({ connection, isServing, region, row, serverId }: NewestRow): void {
  connection.subscribe(new HaSubjects(region).newestRow(serverId), {
    callback(error, message) {
      if (error) return
      // The lease is compared after the row was read.
      const newest = String(row())
      message.respond(isServing() ? newest : '')
    },
  })
}

/** Undefined if the server does not answer, or is not active. Never rejects. */
export async function requestNewestRow(
  connection: NatsConnection | undefined,
  region: string,
  serverId: string | undefined,
): Promise<number | undefined> {
  if (!connection || serverId === undefined) return undefined
  try {
    const { data } = await connection.request(new HaSubjects(region).newestRow(serverId), undefined, {
      timeout: ANSWER_MS,
    })
    const text = Buffer.from(data).toString('latin1')
    return /^\d{1,15}$/.test(text) ? Number(text) : undefined
  } catch {
    return undefined
  }
}
