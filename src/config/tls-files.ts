/** PEM files of the TLS configuration: reading them, and the expiry of their certificates. */
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { messageOf } from '../platform/errors.ts'
import type { TlsConfig } from './config.ts'

/** Contents of the PEM files. */
export interface TlsTexts {
  readonly cert: string
  readonly key: string
  readonly ca?: string
  readonly minVersion: TlsConfig['minVersion']
  readonly verifyClient: boolean
}

/** Undefined when TLS is off. Throws an Error that names the setting whose file cannot be read. */
export function readTlsFiles(tls: TlsConfig): TlsTexts | undefined {
  const { http, certFile, keyFile, caFile, minVersion, verifyHttpsClient } = tls
  if (!http || certFile === undefined || keyFile === undefined) return undefined
  return {
    cert: readPem('tls.cert_file', certFile),
    key: readPem('tls.key_file', keyFile),
    minVersion,
    verifyClient: verifyHttpsClient,
    ...(caFile === undefined ? {} : { ca: readPem('tls.ca_file', caFile) }),
  }
}

function readPem(setting: string, file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new Error(`${setting} cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

const DAY_MS = 86_400_000
/** Expiry is reported from this many days before: enough for a manual renewal, and less than the life of a 90-day certificate. */
const EXPIRY_WARNING_DAYS = 30

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/**
 * The earliest expiry of all certificates of a PEM text, in milliseconds since 1970: an expired intermediate breaks the chain, too.
 * Undefined for a text without a valid certificate.
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

/** Negative after the expiry. */
export function daysLeft(expiryMs: number, nowMs: number): number {
  return (expiryMs - nowMs) / DAY_MS
}

/** `expired on 2026-11-23` or `expires in 12 days, on 2026-12-05`; undefined more than 30 days before. */
export function expiryText(expiryMs: number, nowMs: number): string | undefined {
  const days = daysLeft(expiryMs, nowMs)
  if (days > EXPIRY_WARNING_DAYS) return undefined
  const date = new Date(expiryMs).toISOString()
  const whole = Math.floor(days)
  return days <= 0 ? `expired on ${date}` : `expires in ${whole} ${whole === 1 ? 'day' : 'days'}, on ${date}`
}
