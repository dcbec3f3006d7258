/**
 * Metrics of the secrets core: state, store, requests, tokens, leases, audit, snapshots. They are available in every state, also
 * while the core is sealed; only values that are unknown then are absent.
 */
import { Histogram, IntervalValues } from '../../telemetry/histogram.ts'
import { type AnyFamily, type EngineFamily, type Family, single } from '../../telemetry/metric.ts'
import type { MetricName } from '../../telemetry/metric-docs.ts'
import type { SecretsCore } from '../../secrets/core.ts'
import { countStoredTokens } from '../../secrets/system/system-usage.ts'
import { HaMetrics } from './ha-metrics.ts'
import type { SnapshotSchedule, SnapshotScheduleStatus } from '../../storage/snapshot/scheduled/snapshot-schedule.ts'
import type { SnapshotTime } from './snapshot-time.ts'
import type { SqliteStore } from '../../storage/store/store.ts'

/** Upper bounds in milliseconds, for disks from fast caches to failing ones. */
const COMMIT_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000]
/** Fraction of time for counting tokens. */
const COUNTING_PART = 0.01

export interface SecretsMetricsOptions {
  readonly core: SecretsCore
  readonly store: SqliteStore
  readonly snapshotTime: Pick<SnapshotTime, 'atMs'>
  readonly schedule?: SnapshotSchedule | undefined
}

export class SecretsMetrics {
  readonly #options: SecretsMetricsOptions
  readonly #commitMs = new Histogram(COMMIT_BOUNDS_MS)
  /** In seconds. */
  readonly #recentCommits = new IntervalValues()
  readonly #ha: HaMetrics | undefined
  #tokens: number | undefined
  #leaseCounts: { readonly leases: number; readonly irrevocable: number } | undefined
  #isCounting = false
  #countAgainAtMs = 0

  constructor(options: SecretsMetricsOptions) {
    this.#options = options
    const { core, store } = options
    this.#ha = core.options.ha && new HaMetrics(core.options.ha)
    store.onTransaction = (ms) => {
      this.#commitMs.add(ms)
      this.#recentCommits.add(ms / 1000)
    }
  }

  /** Reads the members of a highly available core. Never rejects. */
  refreshHa(): Promise<void> | undefined {
    return this.#ha?.refresh()
  }

  /** Counts tokens and leases, which takes too long for a scrape. Resolves at once if it is not due. */
  async refresh(): Promise<void> {
    const { core } = this.#options
    await this.refreshHa()
    if (!core.isActive) this.#tokens = this.#leaseCounts = undefined
    if (!core.isActive || this.#isCounting || performance.now() < this.#countAgainAtMs) return
    this.#isCounting = true
    const startedAtMs = performance.now()
    try {
      const tokens = await countStoredTokens(core.open.storage)
      const leases = await core.open.leases.counts()
      this.#tokens = core.isActive ? tokens : undefined
      this.#leaseCounts = core.isActive ? leases : undefined
    } catch (error) {
      // Sealed in the meantime.
      this.#tokens = this.#leaseCounts = undefined
      if (core.isActive) throw error
    } finally {
      this.#isCounting = false
      this.#countAgainAtMs = performance.now() + (performance.now() - startedAtMs) / COUNTING_PART
    }
  }

  /** `freeBytes`: last measured free space of the store's file system. */
  families(freeBytes: number | undefined): AnyFamily[] {
    const { core } = this.#options
    const isInitialised = readOrUndefined(() => core.isInitialised)
    return [
      ...(isInitialised === undefined
        ? []
        : [state('initialized', '1 if the secrets core is initialized, else 0.', isInitialised)]),
      state(
        'sealed',
        '1 if the secrets core is sealed or not initialized; 0 on an unsealed DR secondary.',
        core.isSealed,
      ),
      state('active', '1 if this server serves secrets, else 0.', core.isActive && !core.fence),
      this.#requests(),
      this.#quotas(),
      ...this.#leases(),
      ...this.#engines(),
      ...this.#audit(),
      ...this.#store(freeBytes),
      this.#changedEntries(),
      ...(core.isSealed ? [] : (this.#ha?.families() ?? [])),
      // The core may have been sealed after the count.
      ...(this.#tokens === undefined || !core.isActive
        ? []
        : [single('gauge', 'outpost.tokens', 'Stored service tokens.', this.#tokens)]),
      ...this.#snapshot(),
    ]
  }

  /** None on a DR secondary, which saves no snapshots. */
  #snapshot(): Family[] {
    const { core, schedule, snapshotTime } = this.#options
    if (core.isSecondary) return []
    const help = 'Time of the last complete snapshot in seconds since the epoch; 0: never.'
    return [
      single('gauge', 'outpost.snapshot.last_success_timestamp_seconds', help, snapshotTime.atMs / 1000),
      ...scheduleFamilies(schedule?.status),
    ]
  }

  #changedEntries(): Family {
    const { changed, missing } = this.#options.core.barrier.integrity
    const help = 'Entries changed, removed or restored by another program, found since the core was opened.'
    return single('gauge', 'outpost.store.foreign_changes', help, changed + missing)
  }

  #requests(): Family {
    const { core } = this.#options
    const isMounted = (path: string) => !core.isActive || core.open.mounts.get(path) !== undefined
    return {
      name: 'outpost.secrets.requests',
      kind: 'counter',
      help: 'Finished requests to the secrets core, by mount, verb and status class.',
      points: core.requestCounts
        .all(isMounted)
        .map(({ mount, verb, status, count }) => ({ labels: { mount, verb, status }, value: count })),
    }
  }

  #leases(): Family[] {
    const { core } = this.#options
    if (!core.isActive) return []
    const { failed, revoked } = core.open.leases.revocation.counts
    return [
      ...(this.#leaseCounts === undefined
        ? []
        : [
            single('gauge', 'outpost.leases', 'Stored leases.', this.#leaseCounts.leases),
            single(
              'gauge',
              'outpost.leases_irrevocable',
              'Leases whose revocation failed repeatedly.',
              this.#leaseCounts.irrevocable,
            ),
          ]),
      {
        name: 'outpost.lease.revocations',
        kind: 'counter',
        help: 'Lease revocations, by result.',
        points: [
          { labels: { result: 'revoked' }, value: revoked },
          { labels: { result: 'failed' }, value: failed },
        ],
      },
    ]
  }

  /** Counters of engines; a family has the points of all mounts. */
  #engines(): EngineFamily[] {
    const { core } = this.#options
    if (!core.isActive) return []
    const families = new Map<string, EngineFamily>()
    for (const { engine, facts, storage } of core.open.mounts.all()) {
      for (const { help, name, points } of engine.metrics?.({ mount: facts, storage }) ?? []) {
        const before = families.get(name)?.points ?? []
        families.set(name, { name, kind: 'counter', help, points: [...before, ...points], isOfEngine: true })
      }
    }
    return [...families.values()]
  }

  #audit(): Family[] {
    const states = this.#options.core.audit?.states ?? []
    const family = (name: MetricName, help: string, of: (device: (typeof states)[number]) => number): Family => ({
      name,
      kind: 'counter',
      help,
      points: states.map((device) => ({ labels: { device: device.path }, value: of(device) })),
    })
    return [
      family('outpost.audit.lines', 'Audit lines written, by device.', ({ lines }) => lines),
      family('outpost.audit.failures', 'Audit lines that could not be written, by device.', ({ failures }) => failures),
      family(
        'outpost.audit.chain.breaks',
        'Breaks of the audit chain by another program, by device.',
        ({ breaks }) => breaks,
      ),
      {
        name: 'outpost.audit.disk_full',
        kind: 'gauge',
        help: '1 while the disk of an audit file is full and its lines use the reserve, by device.',
        points: states.map(({ isDiskFull, path }) => ({ labels: { device: path }, value: Number(isDiskFull) })),
      },
      family('outpost.audit.files.lost', 'Truncated or removed audit files, by device.', ({ lostFiles }) => lostFiles),
    ]
  }

  #quotas(): Family {
    const { core } = this.#options
    const exceeded = core.isActive ? core.open.quotas.exceeded() : []
    return {
      name: 'outpost.quota.exceeded',
      kind: 'counter',
      help: 'Requests refused by a rate-limit quota, by name.',
      points: exceeded.map(({ name, count }) => ({ labels: { name }, value: count })),
    }
  }

  #store(freeBytes: number | undefined): AnyFamily[] {
    const { store } = this.#options
    const { done, failed } = store.commitCounts
    return [
      {
        name: 'outpost.store.commit_seconds',
        kind: 'histogram',
        help: 'Duration of a transaction with its fsync; a transaction may contain many commits.',
        points: [{ value: this.#commitMs.distribution(0.001), recent: this.#recentCommits }],
      },
      single('counter', 'outpost.store.commits', 'Durable commits.', done),
      {
        name: 'outpost.store.failures',
        kind: 'counter',
        help: 'Refused and failed commits, by reason; with the reason of an earlier commit if that one failed.',
        points: Object.entries(failed).map(([reason, value]) => ({ labels: { reason }, value })),
      },
      single(
        'gauge',
        'outpost.store.displaced',
        '1 while commits are refused because a database file was moved, replaced or truncated, else 0.',
        Number(store.fault !== undefined),
      ),
      ...gaugeOf('outpost.store.bytes', 'Size of the database with its write-ahead log.', () => store.fileBytes),
      ...gaugeOf('outpost.store.log_bytes', 'Size of the replication log in the database.', () => store.logBytes),
      ...gaugeOf('outpost.store.disk_free_bytes', 'Free space of the file system of the database.', () => freeBytes),
    ]
  }
}

/** None without a schedule, and where nothing is saved. */
function scheduleFamilies(status: SnapshotScheduleStatus | undefined): Family[] {
  if (!status) return []
  const { bytes, durationMs, failures, intervalMs, lastSavedAtMs } = status
  return [
    ...scheduleGauge('interval_seconds', 'Interval of scheduled snapshots.', intervalMs / 1000),
    ...scheduleGauge(
      'last_success_timestamp_seconds',
      'Time of the newest scheduled snapshot in seconds since the epoch; 0: none.',
      lastSavedAtMs === undefined ? undefined : lastSavedAtMs / 1000,
    ),
    ...scheduleGauge('bytes', 'Size of the last scheduled snapshot of this process.', bytes),
    ...scheduleGauge(
      'duration_seconds',
      'Duration of that snapshot with its verification.',
      durationMs && durationMs / 1000,
    ),
    single(
      'counter',
      'outpost.snapshot.scheduled.failures',
      'Failed attempts to save a scheduled snapshot or to remove old ones.',
      failures,
    ),
  ]
}

type ScheduleGauge = 'interval_seconds' | 'last_success_timestamp_seconds' | 'bytes' | 'duration_seconds'

function scheduleGauge(name: ScheduleGauge, help: string, value: number | undefined): Family[] {
  return value === undefined ? [] : [single('gauge', `outpost.snapshot.scheduled.${name}`, help, value)]
}

/** Empty if the value cannot be read: an unreadable database must not remove other metrics. */
function gaugeOf(name: MetricName, help: string, read: () => number | undefined): Family[] {
  try {
    const value = read()
    return value === undefined ? [] : [single('gauge', name, help, value)]
  } catch {
    return []
  }
}

/** The time in a file in milliseconds; 0 without a valid time. */
/** 1 or 0. */
function state(name: 'initialized' | 'sealed' | 'active', help: string, value: boolean): Family {
  return single('gauge', `outpost.secrets.${name}`, help, Number(value))
}

/** Undefined if the database cannot be read: a timer also builds metrics, and an error there would be uncaught. */
function readOrUndefined(ask: () => boolean): boolean | undefined {
  try {
    return ask()
  } catch {
    return undefined
  }
}
