/**
 * Claims that another cluster is the primary: the notice of a promotion, or a peer in a higher epoch. A claim is believed with
 * a proof of membership only (`proofs.ts`): the certificate alone would let its thief fence the primary.
 *
 * A sealed primary cannot verify. It keeps the newest claim of each connection in memory and judges them when it is unsealed,
 * before it serves; the peer is refused meanwhile, and repeats its claim. A claim on another connection does not replace it:
 * that would let a thief of the certificate erase the notice of a promotion.
 */
import { LinkError } from '../link/link.ts'
import type { Alarms } from '../state/alarms.ts'
import type { Proofs, Statement } from '../link/proofs.ts'

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

/** Kept claims of one secondary; the oldest is dropped first. */
const KEPT_MAX = 16

export interface KeptClaims {
  readonly proven: readonly Claim[]
  /** IDs of secondaries that have claimed something, and proven none of it. */
  readonly unproven: readonly string[]
}

export class Claims {
  readonly #proofs: Proofs
  readonly #alarms: Alarms
  /** By the secondary, then by the address of its connection. */
  readonly #pending = new Map<string, Map<string, Claim>>()

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
      if (proof) this.#keep(claim)
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

  #keep(claim: Claim): void {
    const kept = this.#pending.get(claim.id) ?? new Map<string, Claim>()
    kept.delete(claim.address)
    kept.set(claim.address, claim)
    const [oldest] = kept.keys()
    if (kept.size > KEPT_MAX && oldest !== undefined) kept.delete(oldest)
    this.#pending.set(claim.id, kept)
  }

  /** Judges those that were kept while this cluster was sealed; none is kept any more. */
  take(): KeptClaims {
    const kept = [...this.#pending]
    this.#pending.clear()
    const proven = kept.flatMap(([, claims]) => [...claims.values()].filter((claim) => this.#isProven(claim)))
    const unproven = kept.flatMap(([id]) => (proven.some((claim) => claim.id === id) ? [] : [id]))
    return { proven, unproven }
  }

  #isProven(claim: Claim): boolean {
    try {
      this.check(claim)
      return true
    } catch {
      return false
    }
  }

  /** Of a secondary that was revoked. */
  forget(id: string): void {
    this.#pending.delete(id)
  }
}
