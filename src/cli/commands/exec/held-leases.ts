/**
 * The leases that `exec` holds for its command, to be revoked when the command has ended: credentials that nobody uses any more
 * should not stay valid until their TTL. Revocation is an attempt: where the server does not answer or refuses, the lease ends with
 * its TTL, and a warning names it.
 */
import { messageOf } from '../../../platform/errors.ts'
import { CommandError } from '../../framework/command-shape.ts'
import { briefly, type CoreAccess } from '../../core/core-access.ts'

/** A lease that is being replaced may still be in use, so one before the current one is kept. */
const PER_PATH_MAX = 2
/** An engine may have to remove a user of IAM, which takes several calls. */
const REVOKE_MS = 10_000

export class HeldLeases {
  readonly #byPath = new Map<string, string[]>()

  add(path: string, leaseId: string): void {
    const others = (this.#byPath.get(path) ?? []).filter((id) => id !== leaseId)
    this.#byPath.set(path, [...others, leaseId].slice(-PER_PATH_MAX))
  }

  /** Never rejects. */
  async revokeAll(core: CoreAccess, warn: (message: string) => void): Promise<void> {
    const signal = AbortSignal.timeout(REVOKE_MS)
    const revoke = async (id: string) => {
      try {
        await briefly(core, { method: 'PUT', path: 'sys/leases/revoke', body: { lease_id: id } }, signal)
      } catch (error) {
        const why = error instanceof CommandError ? error.message : messageOf(error)
        warn(`the lease ${id} could not be revoked, it ends with its TTL: ${why}`)
      }
    }
    await Promise.all([...this.#byPath.values()].flat().map(revoke))
    this.#byPath.clear()
  }
}
