/**
 * Import this first: shortens heartbeats, timeouts and reconnect intervals of clusters in this process and its children.
 * Timeouts stay long enough for a busy machine. `OUTPOST_TIMINGS={}` keeps the production values.
 */
import type { Timings } from '../../src/cluster/nats/timings.ts'

export const SHORT = {
  heartbeatMs: 1500,
  stateIntervalMs: 100,
  stateRequestIntervalMs: 500,
  rosterSweepMs: 250,
  keepaliveMs: 750,
  silenceTimeoutMs: 3000,
  reconnectMinMs: 100,
  reconnectMaxMs: 500,
  resubscribeMs: 1500,
  drainTimeoutMs: 250,
  refusedTokenMs: 500,
  recheckMaxMs: 1000,
  recheckLocalMs: 250,
  coreProbeMs: 1000,
  logRetryMs: 500,
} satisfies Partial<Timings>

process.env['OUTPOST_TIMINGS'] ??= JSON.stringify(SHORT)
