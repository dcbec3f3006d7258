/**
 * The rows of the active server, which a standby requests before it serves a read, and again if its own entries are newer: the commit stream
 * may reach a standby before the active server has applied the acknowledged group.
 */
import type { NatsConnection } from '@nats-io/transport-node'
import { HaSubjects } from '../cluster/nats/ha-subjects.ts'

const ANSWER_MS = 500

export interface ActiveRows {
  /** Sequence of the newest row that a read at the active server may have included; not before the last acknowledged commit. */
  readonly newest: number
  /** Sequence of the newest row that every read there includes; at most `newest`. */
  readonly visible: number
}

export interface ServedRows {
  readonly connection: NatsConnection
  readonly region: string
  readonly serverId: string
  readonly rows: () => ActiveRows
  readonly isServing: () => boolean
}

export function serveActiveRows({ connection, isServing, region, rows, serverId }: ServedRows): void {
  connection.subscribe(new HaSubjects(region).activeRows(serverId), {
    callback(error, message) {
      if (error) return
      const { newest, visible } = rows()
      // The lease is compared after the rows were read.
      message.respond(isServing() ? `${newest} ${visible}` : '')
    },
  })
}

/** Undefined if the server does not respond, or is not active. Never rejects. */
export async function requestActiveRows(
  connection: NatsConnection | undefined,
  region: string,
  serverId: string | undefined,
): Promise<ActiveRows | undefined> {
  if (!connection || serverId === undefined) return undefined
  try {
    const { data } = await connection.request(new HaSubjects(region).activeRows(serverId), undefined, {
      timeout: ANSWER_MS,
    })
    const [, newest, visible] = /^(\d{1,15}) (\d{1,15})$/.exec(Buffer.from(data).toString('latin1')) ?? []
    return newest !== undefined ? { newest: Number(newest), visible: Number(visible) } : undefined
  } catch {
    return undefined
  }
}
