/**
 * Intervals and timeouts between the processes of a cluster, with their reasons. Derived times (such as when a heartbeat is
 * late) are computed where they are used.
 *
 * Tests of whole clusters set shorter ones in `OUTPOST_TIMINGS`, a JSON object with the names below, which all processes of
 * that cluster inherit (docs/decisions/036). It can only shorten a time, so an environment variable cannot make a process
 * check permissions less often, or tolerate silence longer, than documented. It is not a setting for operators: a process logs
 * that it is set.
 */
import { Fault } from '../../platform/errors.ts'

export const DEFAULT_TIMINGS = {
  /** Interval of the heartbeats of a node. A server reports it as down after three missed ones. */
  heartbeatMs: 10_000,
  /** Minimum interval between two states of a node, so that a busy host does not flood the servers. */
  stateIntervalMs: 500,
  /** Minimum interval between two requests of a server to a node for its state: the answer may be under way. */
  stateRequestIntervalMs: 3000,
  /** Interval of a server's checks for silent nodes. */
  rosterSweepMs: 1000,
  /** Interval of the keepalive messages of both sides of a call that send nothing else. */
  keepaliveMs: 2000,
  /** Silence after which a call is aborted: three missed keepalives and a margin. */
  silenceTimeoutMs: 7000,
  /** Backoff of connection attempts; each wait is reduced by up to three quarters, so that agents do not reconnect all at once. */
  reconnectMinMs: 500,
  reconnectMaxMs: 4000,
  /** Interval of pings to NATS. A dead connection is detected within two of them. */
  natsPingMs: 5000,
  /** Interval of retries of a denied subscription: permissions can change while the process is connected. */
  resubscribeMs: 15_000,
  /** Timeout for writing the last messages before the connection closes. */
  drainTimeoutMs: 2000,
  /** Time for which a token that a server refused is refused without another request. */
  refusedTokenMs: 2000,
  /** Longest interval of permission checks that a server answers: with the timeout of its answer, at most ten seconds. */
  recheckMaxMs: 5000,
  /** Interval of permission checks that this process answers itself. */
  recheckLocalMs: 1000,
  /** Period in which a node must send a minimum (`node-limits.ts`). A search through a large log is silent for minutes. */
  minimumRatePeriodMs: 600_000,
  /** Interval of requests to servers that have another secrets core. The own core is checked in a tenth of it. */
  coreProbeMs: 10_000,
  /** Delay before a log of a job that could not be followed is requested again. */
  logRetryMs: 3000,
  /** Validity of the lease of the active server after a renewal. A standby takes over after this time and the margin. */
  haLeaseMs: 2500,
  /** For clocks that run at different rates. */
  haLeaseMarginMs: 250,
  /** Interval of renewals: four may fail. */
  haRenewMs: 500,
  /** Interval at which a standby reads the lease. */
  haPollMs: 250,
  /** Interval at which a member reports its position. It counts as lost after five missed reports. */
  haReportMs: 2000,
  /** Timeout of a request to the key-value bucket. */
  haRequestMs: 500,
  /** Failing requests about the lease are a fault after this time, longer than any election in NATS. */
  haFailingMs: 15_000,
  /** For this time after a partition, a NATS server may answer with an older state of the stream (22 s were seen). */
  haStaleMs: 60_000,
} as const satisfies Readonly<Record<string, number>>

type TimingName = keyof typeof DEFAULT_TIMINGS
export type Timings = Readonly<Record<TimingName, number>>

function isTimingName(name: string): name is TimingName {
  return Object.hasOwn(DEFAULT_TIMINGS, name)
}

/** The defaults, shortened by `text`. Throws a Fault for a text that is not such an object. */
export function timingsOf(text: string | undefined): Timings {
  const timings: Record<TimingName, number> = { ...DEFAULT_TIMINGS }
  if (!text) return timings
  for (const [name, value] of Object.entries(objectIn(text))) {
    if (!isTimingName(name)) throw new Fault(`OUTPOST_TIMINGS: unknown name ${name}`)
    const longest = DEFAULT_TIMINGS[name]
    if (typeof value !== 'number' || !(value >= 1 && value <= longest)) {
      throw new Fault(`OUTPOST_TIMINGS: ${name} must be a number from 1 to ${longest}`)
    }
    timings[name] = value
  }
  return timings
}

function objectIn(text: string): object {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    value = undefined
  }
  if (typeof value !== 'object' || value === null) throw new Fault('OUTPOST_TIMINGS must be a JSON object of times')
  return value
}

/** True if times differ from those in the documentation. */
export const isShortened = Boolean(process.env['OUTPOST_TIMINGS'])
export const TIMINGS = timingsOf(process.env['OUTPOST_TIMINGS'])
