/**
 * What exchanges need from the daemon, and the counters that they update. The counters are plain numbers in existing objects, because
 * every request updates them.
 */
import type { Logger } from '../platform/log.ts'
import type { Callers } from '../platform/operation.ts'
import type { CrossOrigin } from './cross-origin.ts'
import type { PathLog } from './access-log-paths.ts'
import type { HeaderList } from './respond.ts'
import type { Router } from './router.ts'
import type { ServedHosts } from './served-hosts.ts'
import type { UploadPace } from './upload.ts'

/** Counters of one operation. */
export interface OperationMeter {
  /** Running requests. */
  underway: number
  /** Body bytes sent so far, including running streams. */
  bytes: number
  /** A request has ended after `ms`; undefined for an endless stream. */
  answered(status: number, ms: number | undefined): void
}

export interface Meter {
  /** Counters of an operation by name; `none` for requests without an operation. */
  operation(name: string): OperationMeter
}

const UNCOUNTED: OperationMeter = { underway: 0, bytes: 0, answered: () => undefined }

/** Without counters. */
export const NO_METER: Meter = { operation: () => UNCOUNTED }

export interface HttpServices extends Callers {
  readonly router: Router
  readonly logger: Logger
  /** CORS rule of endpoints that leave it to the setting; without it no CORS headers are sent. */
  readonly crossOrigin?: () => CrossOrigin | undefined
  /** Host names on loopback; absent: all. */
  readonly servedHosts?: ServedHosts
  /** Whether calls need no token; absent: they do. */
  readonly isOpen?: () => boolean
  /** How the access log shows paths. */
  readonly pathLog: PathLog
  /** Paths of monitoring probes: logged at debug. */
  readonly isProbe?: (path: string) => boolean
  /** Counters of requests. */
  readonly meter?: Meter
  /** Headers of every response, alternating names and values. */
  readonly headers: HeaderList
  /** Largest request body of any endpoint; most allow less, or none. */
  readonly bodyBytesMax: () => number
  /** Minimum rate of uploads. */
  readonly uploadPace: () => UploadPace
  /** Whether the process is stopping: no endless response begins. */
  readonly stopping: () => boolean
}
