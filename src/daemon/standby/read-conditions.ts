/** What a client requires of the state that it reads: `X-Vault-Index` of Vault's clients, and `Cache-Control: max-age` (RFC 9111, 5.2.1.1). */
import type { RawInput } from '../../platform/schema.ts'

const VERSION = 'v1'
const MAX_AGE = /(?:^|[,\s])max-age=(\d{1,9})(?:$|[,\s])/

/** The header `X-Vault-Index` for a state: the clients compare its numbers and send it back. */
export function stateHeader(clusterId: string, row: number): string {
  return Buffer.from(`${VERSION}:${clusterId}:${row}:0:`).toString('base64')
}

/** Row of the log that the answer must include; undefined if the client does not require one of this cluster. */
export function requiredRow({ headers }: RawInput, clusterId: string): number | undefined {
  const header = headers['x_vault_index']
  if (!header) return undefined
  const states = header.split(',').flatMap((text) => stateOf(text.trim(), clusterId) ?? [])
  return states.length > 0 ? Math.max(...states) : undefined
}

function stateOf(text: string, clusterId: string): number | undefined {
  const [version, cluster, row, ...rest] = Buffer.from(text, 'base64').toString('latin1').split(':')
  const isOurs = version === VERSION && cluster === clusterId && rest.length === 2 && /^\d{1,15}$/.test(row ?? '')
  return isOurs ? Number(row) : undefined
}

/** Milliseconds; undefined if the client does not accept an older state. */
export function requiredAge({ headers }: RawInput): number | undefined {
  const [, seconds] = MAX_AGE.exec(headers['cache_control'] ?? '') ?? []
  const ageMs = Number(seconds ?? 0) * 1000
  return ageMs > 0 ? ageMs : undefined
}
