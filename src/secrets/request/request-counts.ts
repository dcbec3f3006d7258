/**
 * Counts the requests to the core by mount, verb and status class. Callers create mounts, so the number of labels is bounded:
 * requests to mounts above the limit, or to mounts that no longer exist, are counted as `other`.
 */
import type { Verb } from './parse-request.ts'

/** Mounts with a label */
export const COUNTED_MOUNTS_MAX = 100
/** Label of requests to paths without a mount */
const NONE = 'none'
const OTHER = 'other'

export interface RequestCount {
  readonly mount: string
  readonly verb: Verb
  /** `2xx` and so on. */
  readonly status: string
  readonly count: number
}

/** By verb and status class, such as `read 2xx`. */
type MountCounts = Map<string, { readonly verb: Verb; readonly status: string; count: number }>

export class RequestCounts {
  readonly #mounts = new Map<string, MountCounts>()

  /** `mount` is its path; undefined where there is none. */
  add(mount: string | undefined, verb: Verb, status: number): void {
    this.#increment(mount ?? NONE, verb, `${Math.trunc(status / 100)}xx`, 1)
  }

  #increment(mount: string, verb: Verb, status: string, by: number): void {
    const counts = this.#countsOf(mount)
    const key = `${verb} ${status}`
    const existing = counts.get(key)
    if (existing) existing.count += by
    else counts.set(key, { verb, status, count: by })
  }

  #countsOf(mount: string): MountCounts {
    const known = this.#mounts.get(mount)
    if (known) return known
    const isReserved = mount === NONE || mount === OTHER
    const reserved = Number(this.#mounts.has(NONE)) + Number(this.#mounts.has(OTHER))
    if (!isReserved && this.#mounts.size - reserved >= COUNTED_MOUNTS_MAX) return this.#countsOf(OTHER)
    const counts: MountCounts = new Map()
    this.#mounts.set(mount, counts)
    return counts
  }

  /** Adds the counts of mounts that no longer exist to `other`, then returns all counts. */
  all(isMounted: (path: string) => boolean): RequestCount[] {
    for (const [mount, counts] of this.#mounts) {
      if (mount === NONE || mount === OTHER || isMounted(mount)) continue
      this.#mounts.delete(mount)
      for (const { verb, status, count } of counts.values()) this.#increment(OTHER, verb, status, count)
    }
    return [...this.#mounts].flatMap(([mount, counts]) => [...counts.values()].map((each) => ({ mount, ...each })))
  }
}
