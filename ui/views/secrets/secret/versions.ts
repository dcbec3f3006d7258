/** Versions of a secret: their states, and which of them are compared. */

/** Who changed a version. */
export interface Author {
  readonly actor: string
  readonly operation: string
}

export interface VersionInfo {
  readonly version: number
  readonly created_time: string
  /** Empty if it is not deleted; in the future if it will be. */
  readonly deletion_time: string
  readonly destroyed: boolean
  readonly created_by?: Author | null
  readonly deleted_by?: Author | null
}

export interface SecretSettings {
  readonly max_versions: number
  readonly cas_required: boolean
  readonly delete_version_after: string
  readonly custom_metadata: Readonly<Record<string, string>> | null
}

export interface SecretMetadata extends SecretSettings {
  readonly current_version: number
  readonly oldest_version: number
  readonly current_metadata_version: number
  readonly created_time: string
  readonly updated_time: string
  readonly versions: readonly VersionInfo[]
}

export type VersionState = 'active' | 'deleted' | 'destroyed'

export function stateOf({ deletion_time: deletion, destroyed }: VersionInfo, nowMs = Date.now()): VersionState {
  if (destroyed) return 'destroyed'
  return deletion !== '' && Date.parse(deletion) <= nowMs ? 'deleted' : 'active'
}

type VersionList = Pick<SecretMetadata, 'versions'>

const DAY_MS = 86_400_000

/** The latest version before another one that can be read; 0 if there is none. */
export function versionBefore(metadata: VersionList | undefined, version: number): number {
  const found = readable(metadata).find((each) => each.version < version)
  return found?.version ?? 0
}

/** The version that was the current one at a time, or the latest before it that can be read; 0 if there is none. */
export function versionAt(metadata: VersionList | undefined, atMs: number): number {
  const found = readable(metadata).find(({ created_time: created }) => Date.parse(created) <= atMs)
  return found?.version ?? 0
}

/** Newest first. */
function readable(metadata: VersionList | undefined): readonly VersionInfo[] {
  return (metadata?.versions ?? [])
    .filter((info) => stateOf(info) === 'active')
    .toSorted((one, other) => other.version - one.version)
}

export interface Period {
  readonly title: string
  readonly fromMs: number
  /** Undefined: until now. */
  readonly toMs?: number
}

/** Periods that people ask about, in local time. */
export function periodsOf(now: Date): readonly Period[] {
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime()
  const yesterday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1).getTime()
  return [
    { title: 'Today', fromMs: today },
    { title: 'Yesterday', fromMs: yesterday, toMs: today },
    { title: 'Last 7 days', fromMs: now.getTime() - 7 * DAY_MS },
  ]
}
