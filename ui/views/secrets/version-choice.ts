/** Which versions are compared. */
import { type SecretMetadata, stateOf, type VersionInfo } from './kv.ts'

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
