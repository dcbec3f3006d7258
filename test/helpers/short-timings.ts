/**
 * Import this first: in this file's process, and in all that it starts, the processes of a cluster beat, fall silent, ask and
 * connect again several times as often. Silence stays long enough for a machine on which each process has to wait for
 * its turn. `OUTPOST_TIMINGS={}` keeps the times of production.
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
