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
type Counts = Map<`${Verb} ${string}`, number>

export class RequestCounts {
  readonly #mounts = new Map<string, Counts>()

  /** `mount` is its path; undefined where there is none. */
  add(mount: string | undefined, verb: Verb, status: number): void {
    const counts = this.#countsOf(mount ?? NONE)
    const key = `${verb} ${Math.trunc(status / 100)}xx` as const
    counts.set(key, (counts.get(key) ?? 0) + 1)
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
      const other = this.#countsOf(OTHER)
      for (const [key, count] of counts) other.set(key, (other.get(key) ?? 0) + count)
    }
    return [...this.#mounts].flatMap(([mount, counts]) =>
      [...counts].map(([key, count]) => {
        const [verb, status = ''] = key.split(' ') as [Verb, string]
        return { mount, verb, status, count }
      }),
    )
  }
}
