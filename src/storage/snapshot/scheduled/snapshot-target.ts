/** Where scheduled snapshots are stored, and their names. */
import type { Writable } from 'node:stream'
import type { SnapshotMeta } from '../format/snapshot-archive.ts'

export interface StoredSnapshot {
  readonly name: string
  /** Time in the name, in milliseconds since the epoch. */
  readonly takenAtMs: number
}

/** Writes one snapshot to a stream and ends it. */
export type SnapshotSource = (out: Writable, signal: AbortSignal) => Promise<SnapshotMeta>

export interface SavedSnapshot {
  readonly meta: SnapshotMeta
  readonly bytes: number
}

export interface SnapshotTarget {
  /** Path or URL, for logs and warnings. */
  readonly location: string
  /** Complete snapshots of this cluster, the oldest first. */
  list(signal: AbortSignal): Promise<StoredSnapshot[]>
  /**
   * Resolves once the snapshot is durable under its name and was read back and verified. After an error the name does not exist, unless
   * the deletion of a damaged snapshot failed, too.
   */
  save(name: string, source: SnapshotSource, signal: AbortSignal): Promise<SavedSnapshot>
  remove(name: string, signal: AbortSignal): Promise<void>
}

const SUFFIX = '.snap'

/** `outpost-<cluster ID>-20261127T010203Z.snap`; names in byte order are in order of time. */
export function snapshotName(clusterId: string, atMs: number): string {
  const time = new Date(atMs).toISOString().replace(/\.\d+Z$/, 'Z')
  return `${prefixOf(clusterId)}${time.replaceAll(/[-:]/g, '')}${SUFFIX}`
}

/** The snapshots of a cluster among names of files or objects, the oldest first. Other names are ignored. */
export function snapshotsAmong(names: Iterable<string>, clusterId: string): StoredSnapshot[] {
  const prefix = prefixOf(clusterId)
  return [...names]
    .toSorted((one, other) => (one < other ? -1 : 1))
    .flatMap((name) => {
      if (!name.startsWith(prefix) || !name.endsWith(SUFFIX)) return []
      const time = name.slice(prefix.length, -SUFFIX.length)
      const takenAtMs = Date.parse(time.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z'))
      return Number.isNaN(takenAtMs) || snapshotName(clusterId, takenAtMs) !== name ? [] : [{ name, takenAtMs }]
    })
}

function prefixOf(clusterId: string): string {
  return `outpost-${clusterId}-`
}
