/**
 * What a primary knows of a disconnected secondary: since when, why, and when it last had everything. Its lag grows from that last
 * moment, also when nothing is committed: a failover to it could lose commits made since. Times are monotonic. The state
 * stores the moment as wall-clock time (`caughtUpAtMs`), saved once a minute, so after a kill the lag may be too large by a
 * minute and is never too small.
 */
import type { ConnectedSecondary } from './connected-secondary.ts'
import type { KnownSecondary } from '../state/replication-state.ts'

/** Measurements from a secondary's replies to heartbeats. */
export interface HeartbeatStatus {
  /** Wall-clock time of the last reply; undefined before the first. */
  readonly heartbeatAtMs: number | undefined
  /** Time since the last message of the secondary. */
  readonly heartbeatAgeMs: number
  readonly durationMs: number
  readonly skewMs: number
}

interface Absence {
  readonly sinceMs: number
  readonly why: string
  readonly heartbeat: HeartbeatStatus
}

export class SecondaryPresence {
  readonly #nowMs: () => number
  /** A connection without a message for this time counts as lost. */
  readonly #silenceMs: number
  readonly #openedMs = performance.now()
  readonly #caughtUpMs = new Map<string, number>()
  readonly #lastMessageMs = new Map<string, number>()
  readonly #absences = new Map<string, Absence>()

  constructor(nowMs: () => number, silenceMs: number) {
    this.#nowMs = nowMs
    this.#silenceMs = silenceMs
  }

  recordMessage(id: string): void {
    this.#lastMessageMs.set(id, performance.now())
  }

  connected(id: string): void {
    this.#absences.delete(id)
  }

  /** `why`: for operators. */
  disconnected(connected: Pick<ConnectedSecondary, 'caughtUpMs' | 'id'> & HeartbeatStatus, why: string): void {
    const { caughtUpMs, durationMs, heartbeatAgeMs, heartbeatAtMs, id, skewMs } = connected
    this.#caughtUpMs.set(id, caughtUpMs)
    const heartbeat = { durationMs, heartbeatAgeMs, heartbeatAtMs, skewMs }
    this.#absences.set(id, { sinceMs: performance.now(), why, heartbeat })
  }

  /** Of a disconnected secondary; undefined if it has not connected since the start. */
  lastHeartbeat(id: string): HeartbeatStatus | undefined {
    const absence = this.#absences.get(id)
    if (!absence) return undefined
    const { heartbeat, sinceMs } = absence
    return { ...heartbeat, heartbeatAgeMs: heartbeat.heartbeatAgeMs + Math.round(performance.now() - sinceMs) }
  }

  /** Whether it has a stream, or runs a Merkle sync on a live connection. */
  isConnected(id: string, connected: ConnectedSecondary | undefined): boolean {
    if (connected) return true
    const absence = this.#absences.get(id)
    const heardMs = this.#lastMessageMs.get(id) ?? Number.NEGATIVE_INFINITY
    return heardMs > (absence?.sinceMs ?? Number.NEGATIVE_INFINITY) && performance.now() - heardMs < this.#silenceMs
  }

  /** Empty if it has not connected since the start. */
  disconnectReason(id: string): string {
    return this.#absences.get(id)?.why ?? ''
  }

  absentSeconds(id: string): number {
    return (performance.now() - (this.#absences.get(id)?.sinceMs ?? this.#openedMs)) / 1000
  }

  lagSeconds(one: KnownSecondary, connected: ConnectedSecondary | undefined): number {
    return connected ? connected.lagSeconds : Math.max(0, performance.now() - this.caughtUpMs(one)) / 1000
  }

  /** As wall-clock time, for the state. */
  caughtUpAtMs(one: KnownSecondary, connected: ConnectedSecondary | undefined): number {
    const caughtUpMs = connected?.caughtUpMs ?? this.caughtUpMs(one)
    return Math.round(this.#nowMs() - (performance.now() - caughtUpMs))
  }

  /** Monotonic: when a disconnected secondary last had everything. */
  caughtUpMs({ caughtUpAtMs, id }: Pick<KnownSecondary, 'caughtUpAtMs' | 'id'>): number {
    const known = this.#caughtUpMs.get(id)
    if (known !== undefined) return known
    const agoMs = caughtUpAtMs === undefined ? 0 : Math.max(0, this.#nowMs() - caughtUpAtMs)
    const caughtUpMs = Math.min(performance.now() - agoMs, this.#openedMs)
    this.#caughtUpMs.set(id, caughtUpMs)
    return caughtUpMs
  }

  forget(id: string): void {
    for (const map of [this.#caughtUpMs, this.#lastMessageMs, this.#absences]) map.delete(id)
  }
}
