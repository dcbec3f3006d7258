/**
 * What bodies that are still coming may hold of memory, all together. Up to `FREE_BYTES` each may have what it needs; what
 * is beyond is taken from one budget. Where the operation can tell, only those get any of it whose token is one
 * (`Handler.takesLongBody`): the others could keep all of it from them.
 */

/** Of one body: nearly all that anybody sends is shorter. */
export const FREE_BYTES = 1 << 20
/** Eight of the longest that the secrets core takes. */
const SHARED_BYTES_MAX = 256 << 20

let takenBytes = 0

/** One body's part of it. */
export class BodyShare {
  #takenBytes = 0

  /** True when there is room for a body that has grown to this size; then it is this one's until `release`. */
  grow(bytes: number): boolean {
    const more = bytes - FREE_BYTES - this.#takenBytes
    if (more <= 0) return true
    if (takenBytes + more > SHARED_BYTES_MAX) return false
    takenBytes += more
    this.#takenBytes += more
    return true
  }

  /** May be called more than once. */
  release(): void {
    takenBytes -= this.#takenBytes
    this.#takenBytes = 0
  }
}
