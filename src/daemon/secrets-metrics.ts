/**
 * The figures of a server's secrets: the state of the core, its store, its requests and tokens, and its last snapshot.
 * They are told in every state, above all while the core is sealed; only what cannot be known then is left out.
 */
import { dirname, join } from 'node:path'
import { Histogram, Spread } from '../telemetry/histogram.ts'
import { type AnyFamily, type Family, single } from '../telemetry/metric.ts'
import { messageOf } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import { replaceFile, textIfThere } from '../platform/own-file.ts'
import type { SecretsCore } from '../secrets/core.ts'
import { countedTokens } from '../secrets/system/system-counters.ts'
import type { SqliteStore } from '../storage/store/store.ts'

/** Upper bounds in milliseconds: from a disk with a cache of its own to one that is about to fail. */
const COMMIT_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000]
/** Counting the tokens takes at most this part of the time. */
const COUNTING_PART = 0.01
/** Beside the database: when a snapshot was saved last, in milliseconds since the epoch. */
const SNAPSHOT_FILE = 'snapshot.saved'

export interface SecretsFiguresOptions {
  readonly core: SecretsCore
  readonly store: SqliteStore
  readonly logger: Logger
}

export class SecretsFigures {
  readonly #options: SecretsFiguresOptions
  readonly #commitMs = new Histogram(COMMIT_BOUNDS_MS)
  /** In seconds. */
  readonly #recentCommits = new Spread()
  readonly #snapshotFile: string
  #savedAtMs: number
  #tokens: number | undefined
  #leaseCounts: { readonly leases: number; readonly irrevocable: number } | undefined
  #isCounting = false
  #countAgainAtMs = 0

  constructor(options: SecretsFiguresOptions) {
    this.#options = options
    const { store } = options
    store.onTransaction = (ms) => {
      this.#commitMs.add(ms)
      this.#recentCommits.add(ms / 1000)
    }
    this.#snapshotFile = join(dirname(store.path), SNAPSHOT_FILE)
    this.#savedAtMs = timeIn(this.#snapshotFile)
  }

  /** A snapshot was saved, and its caller has all of it. */
  snapshotSaved(): void {
    this.#savedAtMs = Date.now()
    try {
      replaceFile(this.#snapshotFile, `${this.#savedAtMs}\n`)
    } catch (error) {
      const why = messageOf(error)
      this.#options.logger.warn(
        'the time of the snapshot could not be written: after a restart an older one is shown',
        {
          error: why,
        },
      )
    }
  }

  /** Counts what takes too long to be counted for a question. Resolves at once when it is not due. */
  async refresh(): Promise<void> {
    const { core } = this.#options
    if (!core.isActive) this.#tokens = this.#leaseCounts = undefined
    if (!core.isActive || this.#isCounting || performance.now() < this.#countAgainAtMs) return
    this.#isCounting = true
    const beganAtMs = performance.now()
    try {
      const tokens = await countedTokens(core.open.storage)
      const leases = await core.open.leases.counts()
      this.#tokens = core.isActive ? tokens : undefined
      this.#leaseCounts = core.isActive ? leases : undefined
    } catch (error) {
      // It was sealed meanwhile, which is no fault.
      this.#tokens = this.#leaseCounts = undefined
      if (core.isActive) throw error
    } finally {
      this.#isCounting = false
      this.#countAgainAtMs = performance.now() + (performance.now() - beganAtMs) / COUNTING_PART
    }
  }

  /** `freeBytes`: of the file system that the store is on, as it was seen last. */
  families(freeBytes: number | undefined): AnyFamily[] {
    const { core } = this.#options
    const isInitialised = toldBy(() => core.isInitialised)
    return [
      ...(isInitialised === undefined
        ? []
        : [state('initialized', '1 when the secrets core has been initialised, else 0.', isInitialised)]),
      state(
        'sealed',
        '1 when the secrets core is sealed or not initialised; 0 on a DR secondary that holds the key of its primary.',
        core.isSealed,
      ),
      state('active', '1 when this server answers requests for secrets, else 0.', core.isActive && !core.fence),
      this.#requests(),
      this.#quotas(),
      ...this.#leases(),
      ...this.#engines(),
      ...this.#audit(),
      ...this.#store(freeBytes),
      this.#changedEntries(),
      // It may have been sealed since they were counted.
      ...(this.#tokens === undefined || !core.isActive
        ? []
        : [single('gauge', 'outpost.tokens', 'Service tokens that are kept.', this.#tokens)]),
      ...this.#snapshot(),
    ]
  }

  /** None on a DR secondary, which saves no snapshots: its age would say nothing. */
  #snapshot(): Family[] {
    if (this.#options.core.isSecondary) return []
    const help = 'When a snapshot was last saved in full, in seconds since the epoch; 0: never.'
    return [single('gauge', 'outpost.snapshot.last_success_timestamp_seconds', help, this.#savedAtMs / 1000)]
  }

  #changedEntries(): Family {
    const { changed, missing } = this.#options.core.barrier.integrity
    const help = 'Entries found since the core was opened that another program changed, removed or put back.'
    return single('gauge', 'outpost.store.foreign_changes', help, changed + missing)
  }

  #requests(): Family {
    const { core } = this.#options
    const isMounted = (path: string) => !core.isActive || core.open.mounts.get(path) !== undefined
    return {
      name: 'outpost.secrets.requests',
      kind: 'counter',
      help: 'Requests to the secrets core that are over, by mount, verb and class of status.',
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
            single('gauge', 'outpost.leases', 'Leases that are kept.', this.#leaseCounts.leases),
            single(
              'gauge',
              'outpost.leases_irrevocable',
              'Leases that could not be taken back several times.',
              this.#leaseCounts.irrevocable,
            ),
          ]),
      {
        name: 'outpost.lease.revocations',
        kind: 'counter',
        help: 'Attempts to take leases back, by result.',
        points: [
          { labels: { result: 'revoked' }, value: revoked },
          { labels: { result: 'failed' }, value: failed },
        ],
      },
    ]
  }

  /** What engines count: a family has the points of all mounts. */
  #engines(): Family[] {
    const { core } = this.#options
    if (!core.isActive) return []
    const families = new Map<string, Family>()
    for (const { engine, facts, storage } of core.open.mounts.all()) {
      for (const { help, name, points } of engine.metrics?.({ mount: facts, storage }) ?? []) {
        const before = families.get(name)?.points ?? []
        families.set(name, { name, kind: 'counter', help, points: [...before, ...points] })
      }
    }
    return [...families.values()]
  }

  #audit(): Family[] {
    const states = this.#options.core.audit?.states ?? []
    const family = (name: string, help: string, of: (device: (typeof states)[number]) => number): Family => ({
      name,
      kind: 'counter',
      help,
      points: states.map((device) => ({ labels: { device: device.path }, value: of(device) })),
    })
    return [
      family('outpost.audit.lines', 'Lines that an audit device has recorded.', ({ lines }) => lines),
      family('outpost.audit.failures', 'Lines that an audit device did not record.', ({ failures }) => failures),
      family('outpost.audit.chain.breaks', 'Times that another program changed an audit file.', ({ breaks }) => breaks),
      family('outpost.audit.files.lost', 'Audit files that were truncated or removed.', ({ lostFiles }) => lostFiles),
    ]
  }

  #quotas(): Family {
    const { core } = this.#options
    const exceeded = core.isActive ? core.open.quotas.exceeded() : []
    return {
      name: 'outpost.quota.exceeded',
      kind: 'counter',
      help: 'Requests that a rate-limit quota refused, by its name.',
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
        help: 'What a transaction took, its sync of the disk included; one transaction may hold many commits.',
        points: [{ value: this.#commitMs.distribution(0.001), recent: this.#recentCommits }],
      },
      single('counter', 'outpost.store.commits', 'Commits that became durable.', done),
      single(
        'counter',
        'outpost.store.failures',
        'Commits that failed: a full or failing disk, or a commit before them failed.',
        failed,
      ),
      single(
        'gauge',
        'outpost.store.displaced',
        'A file of the database was moved, replaced or cut while it was open: 1 while commits are refused for it, else 0.',
        Number(store.fault !== undefined),
      ),
      ...gaugeOf('outpost.store.bytes', 'Size of the database with its write-ahead log.', () => store.fileBytes),
      ...gaugeOf('outpost.store.log_bytes', 'Size of the replication log in the database.', () => store.logBytes),
      ...gaugeOf('outpost.store.disk_free_bytes', 'Space left where the database is.', () => freeBytes),
    ]
  }
}

/** Nothing where the value cannot be had: a database that cannot be read takes no other figure with it. */
function gaugeOf(name: string, help: string, read: () => number | undefined): Family[] {
  try {
    const value = read()
    return value === undefined ? [] : [single('gauge', name, help, value)]
  } catch {
    return []
  }
}

/** The time that a file holds, in milliseconds; 0 where there is none. */
function timeIn(file: string): number {
  try {
    const time = Number((textIfThere(file) ?? '').trim())
    return Number.isSafeInteger(time) && time > 0 ? time : 0
  } catch {
    return 0
  }
}

/** 1 or 0. */
function state(name: string, help: string, value: boolean): Family {
  return single('gauge', `outpost.secrets.${name}`, help, Number(value))
}

/** Undefined where the database does not tell: figures are also made by a timer, which nobody would catch an error of. */
function toldBy(ask: () => boolean): boolean | undefined {
  try {
    return ask()
  } catch {
    return undefined
  }
}
