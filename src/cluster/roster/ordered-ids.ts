/**
 * An ordered set of UUIDs, for lists that are read from any position and by prefix, up to millions of IDs. IDs are distributed
 * over buckets by their first digits, and a changed bucket is sorted when it is read, so adding an ID is cheap.
 */

/** Hexadecimal digits that select the bucket. */
const DIGITS = 3
/** Removed IDs of a bucket up to which it is not cleaned up. */
const STALE_MIN = 16

interface Bucket {
  ids: string[]
  isSorted: boolean
  /** Number of removed IDs in `ids`. */
  staleCount: number
}

export class OrderedIds {
  readonly #buckets = Array.from({ length: 16 ** DIGITS }, (): Bucket => ({ ids: [], isSorted: true, staleCount: 0 }))
  readonly #has: (id: string) => boolean

  /** `has` returns true for an added ID that was not removed. */
  constructor(has: (id: string) => boolean) {
    this.#has = has
  }

  add(id: string): void {
    const bucket = this.#bucketOf(id)
    bucket.ids.push(id)
    bucket.isSorted = false
  }

  /** Must be called after `has` returns false for the ID. */
  remove(id: string): void {
    const bucket = this.#bucketOf(id)
    bucket.staleCount++
    if (bucket.staleCount > STALE_MIN && bucket.staleCount > bucket.ids.length / 2) this.#sort(bucket)
  }

  #bucketOf(id: string): Bucket {
    const bucket = this.#buckets[Number.parseInt(id.slice(0, DIGITS), 16)]
    if (!bucket) throw new RangeError(`not a UUID: ${id.slice(0, 64)}`)
    return bucket
  }

  /** Creates a new array, so readers of the old one are not affected. */
  #sort(bucket: Bucket): readonly string[] {
    if (bucket.isSorted && bucket.staleCount === 0) return bucket.ids
    bucket.ids = [...new Set(bucket.ids)].filter((id) => this.#has(id)).sort()
    bucket.isSorted = true
    bucket.staleCount = 0
    return bucket.ids
  }

  /**
   * IDs with this prefix, starting at `from` inclusive, in ascending or descending order. Concurrent changes may or may not be
   * seen.
   */
  *read(options: { readonly prefix: string; readonly from?: string | undefined; readonly reverse: boolean }) {
    const { prefix, from, reverse } = options
    const least = Number.parseInt(prefix.slice(0, DIGITS).padEnd(DIGITS, '0'), 16)
    const most = Number.parseInt(prefix.slice(0, DIGITS).padEnd(DIGITS, 'f'), 16)
    const start = from === undefined ? undefined : Number.parseInt(from.slice(0, DIGITS), 16)
    const first = start === undefined || Number.isNaN(start) ? (reverse ? most : least) : start
    const step = reverse ? -1 : 1
    for (let at = reverse ? Math.min(first, most) : Math.max(first, least); at >= least && at <= most; at += step) {
      const bucket = this.#buckets[at]
      if (!bucket || bucket.ids.length === 0) continue
      const ids = this.#sort(bucket)
      for (const id of reverse ? ids.toReversed() : [...ids]) {
        if (!id.startsWith(prefix)) continue
        if (from !== undefined && (reverse ? id > from : id < from)) continue
        yield id
      }
    }
  }
}
