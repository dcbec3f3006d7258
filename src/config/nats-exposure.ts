/** Which NATS servers this process would speak to without TLS over a network. */
import type { NatsConfig } from './config.ts'

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i

/** The servers beyond loopback to which a connection without TLS is accepted, as they are configured. */
export function unencryptedServers({ servers, caFile, certFile }: NatsConfig): string[] {
  if (caFile !== undefined || certFile !== undefined || servers.some((server) => /^tls:/i.test(server))) return []
  return servers.filter((server) => {
    const url = URL.parse(`http://${server.replace(/^[a-z]+:\/\//i, '')}`)
    return !url || !LOOPBACK.test(url.hostname)
  })
}
