/** Why a primary cannot be reached: gRPC reports a closed port and a failed TLS handshake alike. */
import { connect } from 'node:net'
import { errnoOf } from '../../platform/errors.ts'

const PROBE_TIMEOUT_MS = 2000

/** The result of one TCP connection to `address`, a host and a port. Never rejects. */
export async function unreachableReason(address: string, signal?: AbortSignal): Promise<string> {
  const colon = address.lastIndexOf(':')
  const host = address.slice(0, colon).replace(/^\[|\]$/g, '')
  const socket = connect({ host, port: Number(address.slice(colon + 1)), ...(signal && { signal }) })
  const reason = await new Promise<string>((resolve) => {
    socket.once('connect', () =>
      resolve('its certificate is from another replication set, or the process does not respond'),
    )
    socket.once('error', (error) => resolve(connectFault(errnoOf(error))))
    socket.setTimeout(PROBE_TIMEOUT_MS, () => resolve('no TCP connection, check firewalls'))
  })
  socket.on('error', () => undefined).destroy()
  return reason
}

function connectFault(code: string | undefined): string {
  return code === 'ECONNREFUSED'
    ? 'connection refused, the primary is down or has another cluster port'
    : `no TCP connection (${code ?? 'aborted'})`
}
