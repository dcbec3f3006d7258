/**
 * Expiry of the certificates of this process: a metric with the remaining days, and a log line at the start, after a reload and
 * once a day, from 30 days before expiry, and for the NATS server when it presents another certificate. A renewal is logged once.
 *
 * The listener's certificate is the one in use: a renewed file counts after a reload. Those of NATS and of the secrets login are
 * read from their files, which each new connection reads again.
 */
import { readFileSync } from 'node:fs'
import type { Family } from '../../telemetry/metric.ts'
import { daysLeft, expiryMsOf, expiryText } from '../../config/tls-files.ts'
import type { Config } from '../../config/load.ts'
import type { Logger } from '../../platform/log.ts'

const CHECK_MS = 86_400_000
/** Cache time of the values for scrapes. */
const READ_EVERY_MS = 60_000

interface ExpiryParts {
  readonly logger: Logger
  readonly config: () => Config
  /** PEM of the listener's certificate in use. */
  readonly http: () => string | undefined
  /** PEM of the certificates of the replication link. */
  readonly cluster: () => readonly string[]
  /** Of the connected NATS server; undefined without a connection, because the next server may present another certificate. */
  readonly natsServerExpiryMs: () => number | undefined
}

interface Expiry {
  readonly certificate: 'http' | 'cluster' | 'nats' | 'nats_server' | 'secrets'
  readonly file: string | undefined
  readonly expiryMs: number
}

export class CertificateExpiry {
  readonly #parts: ExpiryParts
  readonly #timer: NodeJS.Timeout
  #known: readonly Expiry[] = []
  #readAtMs = Number.NEGATIVE_INFINITY
  #natsServerMs: number | undefined
  /** Certificates that the log reported as expired or expiring. */
  readonly #reported = new Set<Expiry['certificate']>()

  constructor(parts: ExpiryParts) {
    this.#parts = parts
    this.#timer = setInterval(() => this.check(), CHECK_MS).unref()
    this.check()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Logs each certificate that has expired or expires soon. */
  check(): void {
    this.#natsServerMs = this.#parts.natsServerExpiryMs()
    this.#readAtMs = Number.NEGATIVE_INFINITY
    for (const expiry of this.#expiries()) this.#report(expiry)
  }

  #report({ certificate, expiryMs, file }: Expiry): void {
    const nowMs = Date.now()
    const { logger } = this.#parts
    const days = daysLeft(expiryMs, nowMs)
    const fields = { certificate, file, not_after: new Date(expiryMs).toISOString(), days_left: Math.trunc(days) }
    if (expiryText(expiryMs, nowMs) === undefined) {
      if (this.#reported.delete(certificate)) logger.info('certificate renewed', fields)
      return
    }
    this.#reported.add(certificate)
    if (days <= 0) logger.error('certificate expired', fields)
    else logger.warn('certificate expires soon', fields)
  }

  /** For readiness. No file names: it is open to every caller. */
  get warnings(): readonly string[] {
    const nowMs = Date.now()
    return this.#expiries().flatMap(({ certificate, expiryMs }) => {
      const text = expiryText(expiryMs, nowMs)
      return text === undefined ? [] : [`certificate "${certificate}" ${text}`]
    })
  }

  families(): Family[] {
    const nowMs = Date.now()
    const points = this.#expiries().map(({ certificate, expiryMs }) => ({
      labels: { certificate },
      value: Math.round(daysLeft(expiryMs, nowMs) * 100) / 100,
    }))
    const help = 'Days until the certificate expires, negative afterwards.'
    return points.length === 0 ? [] : [{ name: 'outpost.certificate_days_left', kind: 'gauge', help, points }]
  }

  #expiries(): readonly Expiry[] {
    const nowMs = performance.now()
    const { cluster, config, http, natsServerExpiryMs } = this.#parts
    const natsServerMs = natsServerExpiryMs()
    const isOther = natsServerMs !== this.#natsServerMs
    if (nowMs - this.#readAtMs < READ_EVERY_MS && !isOther) return this.#known
    this.#readAtMs = nowMs
    this.#natsServerMs = natsServerMs
    const { nats, secrets, tls } = config()
    const natsServer =
      natsServerMs === undefined
        ? []
        : [{ certificate: 'nats_server', file: undefined, expiryMs: natsServerMs } as const]
    if (isOther) for (const expiry of natsServer) this.#report(expiry)
    this.#known = [
      ...expiryOf('http', http(), tls.certFile),
      ...expiryOf('cluster', cluster().join('\n'), undefined),
      ...expiryOf('nats', textOf(nats?.certFile), nats?.certFile),
      ...natsServer,
      ...expiryOf('secrets', textOf(secrets?.address?.certFile), secrets?.address?.certFile),
    ]
    return this.#known
  }
}

function expiryOf(certificate: Expiry['certificate'], pem: string | undefined, file: string | undefined): Expiry[] {
  const expiryMs = pem === undefined ? undefined : expiryMsOf(pem)
  return expiryMs === undefined ? [] : [{ certificate, file, expiryMs }]
}

/** Undefined for an unreadable file: the connection that needs it reports that. */
function textOf(file: string | undefined): string | undefined {
  try {
    return file === undefined ? undefined : readFileSync(file, 'utf8')
  } catch {
    return undefined
  }
}
