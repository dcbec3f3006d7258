/**
 * How many requests the core has answered, by mount, verb and class of status. Mounts are made by callers, so their
 * number is bounded here: what is beyond the bound, or is no longer mounted, is counted as `other`.
 */
import type { Verb } from './request.ts'

/** Mounts with figures of their own. */
export const COUNTED_MOUNTS_MAX = 100
/** Requests for which there is no mount. */
const NONE = 'none'
const OTHER = 'other'

export interface RequestCount {
  readonly mount: string
  readonly verb: Verb
  /** `2xx` and so on. */
  readonly status: string
  readonly count: number
}

/** By verb and class of status, such as `read 2xx`. */
type Counts = Map<string, { readonly verb: Verb; readonly status: string; count: number }>

export class RequestCounts {
  readonly #mounts = new Map<string, Counts>()

  /** `mount` is its path; undefined where there is none. */
  add(mount: string | undefined, verb: Verb, status: number): void {
    this.#raise(mount ?? NONE, verb, `${Math.trunc(status / 100)}xx`, 1)
  }

  #raise(mount: string, verb: Verb, status: string, by: number): void {
    const counts = this.#countsOf(mount)
    const key = `${verb} ${status}`
    const known = counts.get(key)
    if (known) known.count += by
    else counts.set(key, { verb, status, count: by })
  }

  #countsOf(mount: string): Counts {
    const found = this.#mounts.get(mount)
    if (found) return found
    const isOwn = mount === NONE || mount === OTHER
    const own = Number(this.#mounts.has(NONE)) + Number(this.#mounts.has(OTHER))
    if (!isOwn && this.#mounts.size - own >= COUNTED_MOUNTS_MAX) return this.#countsOf(OTHER)
    const made: Counts = new Map()
    this.#mounts.set(mount, made)
    return made
  }

  /** All counts; those of mounts that `isMounted` does not know any more become `other` first. */
  all(isMounted: (path: string) => boolean): RequestCount[] {
    for (const [mount, counts] of this.#mounts) {
      if (mount === NONE || mount === OTHER || isMounted(mount)) continue
      this.#mounts.delete(mount)
      for (const { verb, status, count } of counts.values()) this.#raise(OTHER, verb, status, count)
    }
    return [...this.#mounts].flatMap(([mount, counts]) => [...counts.values()].map((each) => ({ mount, ...each })))
  }
}
