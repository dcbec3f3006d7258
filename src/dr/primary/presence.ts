/**
 * What a primary knows of a secondary that does not follow at the moment: since when, why, and when it last had everything.
 * The lag of a disconnected secondary grows from that last moment, also when nothing is committed meanwhile: a failover to it
 * could lose whatever was committed since. Times are monotonic. The state keeps the moment over restarts by the clock
 * (`caughtUpAtMs`), saved once a minute, so after a kill the lag may be too large by a minute and is never too small.
 */
import type { Follower } from './follower.ts'
import type { KnownSecondary } from '../state/state.ts'

/** What the answers of a secondary to heartbeats say. */
export interface Heartbeat {
  /** When the last one was answered, by the clock; undefined before the first. */
  readonly heartbeatAtMs: number | undefined
  /** Since any message of the secondary. */
  readonly heartbeatAgeMs: number
  readonly durationMs: number
  readonly skewMs: number
}

interface Absence {
  readonly sinceMs: number
  readonly why: string
  readonly heartbeat: Heartbeat
}

export class Presence {
  readonly #nowMs: () => number
  /** A connection without a message for so long counts as lost. */
  readonly #silenceMs: number
  readonly #openedMs = performance.now()
  readonly #caughtUpMs = new Map<string, number>()
  readonly #heardMs = new Map<string, number>()
  readonly #absences = new Map<string, Absence>()

  constructor(nowMs: () => number, silenceMs: number) {
    this.#nowMs = nowMs
    this.#silenceMs = silenceMs
  }

  heard(id: string): void {
    this.#heardMs.set(id, performance.now())
  }

  follows(id: string): void {
    this.#absences.delete(id)
  }

  /** `why`: for operators. */
  left(follower: Pick<Follower, 'caughtUpMs' | 'id'> & Heartbeat, why: string): void {
    const { caughtUpMs, durationMs, heartbeatAgeMs, heartbeatAtMs, id, skewMs } = follower
    this.#caughtUpMs.set(id, caughtUpMs)
    const heartbeat = { durationMs, heartbeatAgeMs, heartbeatAtMs, skewMs }
    this.#absences.set(id, { sinceMs: performance.now(), why, heartbeat })
  }

  /** Of a secondary that does not follow; undefined where it has not followed since the start. */
  lastHeartbeat(id: string): Heartbeat | undefined {
    const absence = this.#absences.get(id)
    if (!absence) return undefined
    const { heartbeat, sinceMs } = absence
    return { ...heartbeat, heartbeatAgeMs: heartbeat.heartbeatAgeMs + Math.round(performance.now() - sinceMs) }
  }

  /** It follows, or makes its first copy or compares trees on a connection that is alive. */
  isConnected(id: string, follower: Follower | undefined): boolean {
    if (follower) return true
    const absence = this.#absences.get(id)
    const heardMs = this.#heardMs.get(id) ?? Number.NEGATIVE_INFINITY
    return heardMs > (absence?.sinceMs ?? Number.NEGATIVE_INFINITY) && performance.now() - heardMs < this.#silenceMs
  }

  /** Why the secondary does not follow; empty where it has not followed since the start. */
  reason(id: string): string {
    return this.#absences.get(id)?.why ?? ''
  }

  /** For how long a secondary that does not follow has not. */
  absentSeconds(id: string): number {
    return (performance.now() - (this.#absences.get(id)?.sinceMs ?? this.#openedMs)) / 1000
  }

  lagSeconds(one: KnownSecondary, follower: Follower | undefined): number {
    return follower ? follower.lagSeconds : Math.max(0, performance.now() - this.caughtUpMs(one)) / 1000
  }

  /** By the clock, for the state. */
  caughtUpAtMs(one: KnownSecondary, follower: Follower | undefined): number {
    const caughtUpMs = follower?.caughtUpMs ?? this.caughtUpMs(one)
    return Math.round(this.#nowMs() - (performance.now() - caughtUpMs))
  }

  /** Monotonic: when a secondary that does not follow last had everything. */
  caughtUpMs({ caughtUpAtMs, id }: Pick<KnownSecondary, 'caughtUpAtMs' | 'id'>): number {
    const known = this.#caughtUpMs.get(id)
    if (known !== undefined) return known
    const agoMs = caughtUpAtMs === undefined ? 0 : Math.max(0, this.#nowMs() - caughtUpAtMs)
    const caughtUpMs = Math.min(performance.now() - agoMs, this.#openedMs)
    this.#caughtUpMs.set(id, caughtUpMs)
    return caughtUpMs
  }

  /** It is revoked. */
  forget(id: string): void {
    for (const map of [this.#caughtUpMs, this.#heardMs, this.#absences]) map.delete(id)
  }
}
