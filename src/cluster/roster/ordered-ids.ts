/**
 * UUIDs in order, for lists that are read from any place and by prefix, a million of them as well. They are spread over
 * buckets by their first digits, and a bucket is sorted when it is read and has changed: to add one costs a push.
 */

const DIGITS = 3

interface Bucket {
  ids: string[]
  sorted: boolean
  /** How many of `ids` are gone, or stand there twice. */
  stale: number
}

export class OrderedIds {
  readonly #buckets = Array.from({ length: 16 ** DIGITS }, (): Bucket => ({ ids: [], sorted: true, stale: 0 }))
  readonly #has: (id: string) => boolean

  /** `has` says which of those that were added are still there. */
  constructor(has: (id: string) => boolean) {
    this.#has = has
  }

  add(id: string): void {
    const bucket = this.#bucketOf(id)
    bucket.ids.push(id)
    bucket.sorted = false
  }

  /** To be called when `has` no longer has it. */
  remove(id: string): void {
    const bucket = this.#bucketOf(id)
    bucket.stale++
    if (bucket.stale > 16 && bucket.stale > bucket.ids.length / 2) this.#settle(bucket)
  }

  #bucketOf(id: string): Bucket {
    const bucket = this.#buckets[Number.parseInt(id.slice(0, DIGITS), 16)]
    if (!bucket) throw new RangeError(`no UUID: ${id.slice(0, 64)}`)
    return bucket
  }

  /** A new array each time, so whoever reads the old one is not disturbed. */
  #settle(bucket: Bucket): readonly string[] {
    if (bucket.sorted && bucket.stale === 0) return bucket.ids
    bucket.ids = [...new Set(bucket.ids)].filter((id) => this.#has(id)).sort()
    bucket.sorted = true
    bucket.stale = 0
    return bucket.ids
  }

  /**
   * Those that begin with `prefix`, beginning with `from` itself, in order or in reverse. What is added or removed
   * meanwhile may or may not be among them.
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
      const ids = this.#settle(bucket)
      for (const id of reverse ? ids.toReversed() : [...ids]) {
        if (!id.startsWith(prefix)) continue
        if (from !== undefined && (reverse ? id > from : id < from)) continue
        yield id
      }
    }
  }
}
