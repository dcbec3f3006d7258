/**
 * Why a primary cannot be reached, from one TLS connection: gRPC reports a closed port, an expired certificate and any other failed
 * handshake alike.
 */
import { X509Certificate } from 'node:crypto'
import { connect, type TLSSocket } from 'node:tls'
import { errnoOf } from '../../platform/errors.ts'
import { serverNameOf, type Upstream } from './certificates.ts'

const PROBE_TIMEOUT_MS = 2000
const VALIDITY_ERRORS: ReadonlySet<string> = new Set(['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID'])

/** `address`: a host and a port. */
export async function connectionFault(upstream: Upstream, address: string, signal?: AbortSignal): Promise<string> {
  const { isTls, peer, refusal } = await probe(upstream, address, signal)
  const [own, authority] = [upstream.certificate, upstream.authority].map((text) => new X509Certificate(text))
  // Without a TLS connection the cause is another one, and an expired own certificate does not prevent a handshake.
  const fault =
    isTls &&
    (validityFault('the certificate of this cluster for the replication link', own) ??
      validityFault('the certificate of the primary for the replication link', peer) ??
      validityFault('the certificate authority of the primary', authority))
  return fault ? `no connection to ${address}: ${fault}` : `no response at ${address}: ${refusal}`
}

interface Probe {
  readonly isTls: boolean
  readonly peer?: X509Certificate | undefined
  readonly refusal: string
}

async function probe(
  { authority, certificate, key, setId }: Upstream,
  address: string,
  signal: AbortSignal | undefined,
): Promise<Probe> {
  const colon = address.lastIndexOf(':')
  const socket = connect({
    host: address.slice(0, colon).replace(/^\[|\]$/g, ''),
    port: Number(address.slice(colon + 1)),
    ca: authority,
    cert: certificate,
    key,
    servername: serverNameOf(setId),
    ALPNProtocols: ['h2'],
    // The certificate is looked at, and nothing is sent.
    rejectUnauthorized: false,
  })
  const abort = () => socket.destroy(new Error('aborted'))
  signal?.addEventListener('abort', abort, { once: true })
  let isOpen = false
  socket.once('connect', () => (isOpen = true))
  const found = await new Promise<Probe>((resolve) => {
    const refused = (refusal: string) => resolve({ isTls: false, refusal })
    socket.once('secureConnect', () => resolve(tlsProbe(socket)))
    socket.once('error', (error) => refused(isOpen ? 'it does not use TLS' : tcpFault(errnoOf(error))))
    socket.once('close', () => refused('the process closed the connection'))
    socket.setTimeout(PROBE_TIMEOUT_MS, () =>
      refused(isOpen ? 'the process does not respond' : 'no TCP connection, check firewalls'),
    )
    if (signal?.aborted) abort()
  })
  signal?.removeEventListener('abort', abort)
  socket.on('error', () => undefined).destroy()
  return found
}

function tlsProbe(socket: TLSSocket): Probe {
  const refusal = socket.authorized
    ? 'it closed the connection: it does not accept the certificate of this cluster, or was busy'
    : 'its certificate is from another replication set'
  // The validity of a certificate of another set explains nothing.
  const isOfSet = socket.authorized || VALIDITY_ERRORS.has(String(socket.authorizationError))
  return { isTls: true, peer: isOfSet ? socket.getPeerX509Certificate() : undefined, refusal }
}

/** Undefined if the certificate is valid at this time. */
function validityFault(name: string, certificate: X509Certificate | undefined): string | undefined {
  if (!certificate) return undefined
  const { validFromDate: from, validToDate: to } = certificate
  const nowMs = Date.now()
  if (nowMs > to.getTime()) return `${name} expired at ${to.toISOString()}`
  if (nowMs < from.getTime()) return `${name} is not valid before ${from.toISOString()}, check the clocks`
  return undefined
}

function tcpFault(code: string | undefined): string {
  return code === 'ECONNREFUSED'
    ? 'connection refused, the primary is down or has another cluster port'
    : `no TCP connection (${code ?? 'aborted'})`
}
