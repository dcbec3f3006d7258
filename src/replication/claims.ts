/**
 * Claims that another cluster is the primary: the notice of a promotion, or a peer in a higher epoch. A claim is believed with
 * a proof of membership only (`proofs.ts`): the certificate alone would let its thief fence the primary.
 *
 * A sealed primary cannot verify. It keeps the newest claim of each secondary in memory and judges it when it is unsealed,
 * before it serves; the peer is refused meanwhile, and repeats its claim.
 */
import { LinkError } from './link.ts'
import type { Alarms } from './alarms.ts'
import type { Proofs, Statement } from './proofs.ts'

/** Of a promotion elsewhere, as a peer tells it. */
export interface Deposed {
  readonly epoch: number
  readonly addresses: readonly string[]
  readonly api: string
  /** ID of the secondary that was promoted, where it says so itself. */
  readonly heir?: string
  /** ID of the secondary whose proof of membership says so. */
  readonly provenBy?: string
  /** This cluster was promoted, too, in the same epoch. */
  readonly isRival?: boolean
}

export interface Claim {
  /** ID of the secondary that makes it. */
  readonly id: string
  /** host:port of its connection. */
  readonly address: string
  readonly statement: Statement
  readonly proof: Uint8Array | undefined
  readonly by: Deposed
}

export class Claims {
  readonly #proofs: Proofs
  readonly #alarms: Alarms
  readonly #pending = new Map<string, Claim>()

  constructor(proofs: Proofs, alarms: Alarms) {
    this.#proofs = proofs
    this.#alarms = alarms
  }

  /** Throws a LinkError for a claim that is not proven: `unproven`, or `sealed` while this cluster cannot tell. */
  check(claim: Claim): void {
    const { address, by, id, proof, statement } = claim
    const verdict = this.#proofs.verify(statement, proof)
    if (verdict === 'valid') return void this.#pending.delete(id)
    if (verdict === 'sealed') {
      if (proof) this.#pending.set(id, claim)
      throw new LinkError(
        'sealed',
        'this primary is sealed and cannot verify who was promoted; it does when it is unsealed',
      )
    }
    this.#alarms.raise('proof', id, { address, epoch: String(by.epoch), proof: verdict })
    throw new LinkError(
      'unproven',
      verdict === 'absent'
        ? `epoch ${by.epoch} was claimed without a proof of membership: unseal the cluster that claims it, or upgrade it`
        : 'the proof of membership is not valid: the secondary has other barrier keys than this primary',
    )
  }

  /** Those that were kept while this cluster was sealed and are proven; none is kept any more. */
  take(): Claim[] {
    const kept = [...this.#pending.values()]
    this.#pending.clear()
    return kept.filter((claim) => {
      try {
        this.check(claim)
        return true
      } catch {
        return false
      }
    })
  }

  /** Of a secondary that was revoked. */
  forget(id: string): void {
    this.#pending.delete(id)
  }
}
