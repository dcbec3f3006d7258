/** When the certificates of PEM files expire, and what the operator is told about it. */
import { X509Certificate } from 'node:crypto'

const DAY_MS = 86_400_000
/** From here on expiry is reported: long enough for a manual renewal, shorter than the life of a 90-day certificate. */
export const EXPIRY_WARNING_DAYS = 30

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/**
 * When the first certificate of a PEM text expires, in milliseconds since 1970: an expired intermediate breaks the chain
 * like an expired leaf. Undefined if the text has no certificate that can be parsed.
 */
export function expiryMsOf(pem: string): number | undefined {
  const ends = (pem.match(CERTIFICATE) ?? []).flatMap((text) => {
    try {
      return [new X509Certificate(text).validToDate.getTime()]
    } catch {
      return []
    }
  })
  return ends.length === 0 ? undefined : Math.min(...ends)
}

/** Negative once it has expired. */
export function daysLeft(expiryMs: number, nowMs: number): number {
  return (expiryMs - nowMs) / DAY_MS
}

/** `expired on 2026-11-23` or `expires in 12 days, on 2026-12-05`; undefined while that is more than 30 days away. */
export function expiryText(expiryMs: number, nowMs: number): string | undefined {
  const days = daysLeft(expiryMs, nowMs)
  if (days > EXPIRY_WARNING_DAYS) return undefined
  const date = new Date(expiryMs).toISOString()
  const whole = Math.floor(days)
  return days <= 0 ? `expired on ${date}` : `expires in ${whole} ${whole === 1 ? 'day' : 'days'}, on ${date}`
}
