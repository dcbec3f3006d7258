/** One connection to one NATS server with the configured credentials, for the diagnosis of a host. */
import { connect, PermissionViolationError } from '@nats-io/transport-node'
import type { NatsConnection } from '@nats-io/transport-node'
import { sleep } from '../../platform/clock.ts'
import { type LoginOptions, loginOf } from './nats-login.ts'

const CONNECT_TIMEOUT_MS = 5000
const FLUSH_TIMEOUT_MS = 5000
const EMPTY = new Uint8Array(0)

export interface NatsProbeOptions extends LoginOptions {
  readonly server: string
  readonly name: string
  /** Subjects that the process needs. Those to publish must have no effect. */
  readonly subjects: { readonly publish: readonly string[]; readonly subscribe: readonly string[] }
  /** Receives messages for a time, if the server permits the subscription. */
  readonly listen?: {
    readonly subject: string
    readonly durationMs: number
    onMessage(payload: Uint8Array, subject: string): void
  }
}

export interface NatsProbe {
  readonly serverName: string
  readonly serverVersion: string
  readonly roundTripMs: number
  readonly isEncrypted: boolean
  /** Largest message that the server accepts. */
  readonly payloadBytesMax: number
  /** Denied permissions. */
  readonly denied: readonly { readonly operation: string; readonly subject: string }[]
  /** Expiry of the server's certificate; undefined without TLS settings. */
  readonly certificateExpiryMs: number | undefined
}

/** Rejects with the reason if the server does not accept the connection. */
export async function probeNats(options: NatsProbeOptions): Promise<NatsProbe> {
  const { name, server } = options
  let certificateExpiryMs: number | undefined
  const onServerCertificate = (expiryMs: number) => {
    certificateExpiryMs = expiryMs
  }
  const connection = await connect({
    ...loginOf({ ...options, onServerCertificate }, [server]),
    servers: [server],
    name,
    timeout: CONNECT_TIMEOUT_MS,
    reconnect: false,
  })
  const denials = collectDenials(connection)
  let facts: Awaited<ReturnType<typeof probeConnection>>
  try {
    facts = await probeConnection(connection, options)
  } finally {
    await connection.close()
  }
  // The stream of statuses ends with the connection.
  return {
    ...facts,
    denied: await denials,
    certificateExpiryMs,
    isEncrypted: facts.isEncrypted || certificateExpiryMs !== undefined,
  }
}

async function probeConnection(
  connection: NatsConnection,
  { listen, subjects }: Pick<NatsProbeOptions, 'listen' | 'subjects'>,
): Promise<Omit<NatsProbe, 'denied' | 'certificateExpiryMs'>> {
  const roundTripMs = await connection.rtt()
  for (const subject of subjects.subscribe) connection.subscribe(subject, { callback: () => undefined })
  for (const subject of subjects.publish) connection.publish(subject, EMPTY)
  await flushed(connection)
  if (listen) await listenTo(connection, listen)
  const { info } = connection
  return {
    serverName: info?.server_name ?? '',
    serverVersion: info?.version ?? '',
    roundTripMs,
    isEncrypted: info?.tls_required === true,
    payloadBytesMax: info?.max_payload ?? 0,
  }
}

/** Denied permissions of the connection, until it ends. */
async function collectDenials(connection: NatsConnection): Promise<{ operation: string; subject: string }[]> {
  const denied: { operation: string; subject: string }[] = []
  for await (const status of connection.status()) {
    if (status.type !== 'error' || !(status.error instanceof PermissionViolationError)) continue
    const { operation, subject } = status.error
    denied.push({ operation, subject })
  }
  return denied
}

/** The server reports errors before it answers the flush. */
async function flushed(connection: NatsConnection): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('no response from the NATS server')), FLUSH_TIMEOUT_MS)
  })
  try {
    await Promise.race([connection.flush(), late])
  } finally {
    clearTimeout(timer)
  }
}

async function listenTo(connection: NatsConnection, listen: NonNullable<NatsProbeOptions['listen']>): Promise<void> {
  const subscription = connection.subscribe(listen.subject, {
    callback: (error, message) => {
      if (!error) listen.onMessage(message.data, message.subject)
    },
  })
  await sleep(listen.durationMs)
  subscription.unsubscribe()
}
