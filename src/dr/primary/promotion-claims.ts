/**
 * Claims that another cluster is the primary: the notice of a promotion, or a peer in a higher epoch. A claim counts only with
 * a proof of membership (`proofs.ts`): otherwise an attacker who stole a certificate could fence the primary.
 *
 * A sealed primary cannot verify. It keeps the newest claim of each connection in memory and verifies them when it is unsealed,
 * before it serves; until then it refuses the peer, which repeats its claim, and reports it to operators as a claim. A claim on another
 * connection does not replace it: otherwise an attacker with the certificate could erase the notice of a promotion.
 */
import { LinkError } from '../link/link.ts'
import type { SecurityAlarms } from './security-alarms.ts'
import type { Proofs, Statement } from '../link/proofs.ts'

/** The promoted cluster, as a peer announces it. */
export interface NewerPrimary {
  readonly epoch: number
  readonly addresses: readonly string[]
  readonly api: string
  /** ID of the promoted secondary, if the claim came from it. */
  readonly heir?: string
  /** ID of the secondary whose proof of membership confirms it. */
  readonly provenBy?: string
  /** This cluster was also promoted, in the same epoch. */
  readonly isRival?: boolean
}

export interface PromotionClaim {
  /** ID of the secondary that claims it. */
  readonly id: string
  /** host:port of its connection. */
  readonly address: string
  readonly statement: Statement
  readonly proof: Uint8Array | undefined
  readonly by: NewerPrimary
}

/** Per secondary; the oldest is dropped first. */
const PENDING_CLAIMS_MAX = 16
const SHOWN_LENGTH_MAX = 256

export interface VerifiedClaims {
  readonly proven: readonly PromotionClaim[]
  /** IDs of secondaries without any valid claim. */
  readonly unproven: readonly string[]
}

export class PromotionClaims {
  readonly #proofs: Proofs
  readonly #alarms: SecurityAlarms
  /** By secondary ID, then by the address of the connection. */
  readonly #pending = new Map<string, Map<string, PromotionClaim>>()

  constructor(proofs: Proofs, alarms: SecurityAlarms) {
    this.#proofs = proofs
    this.#alarms = alarms
  }

  /** The newest claim that waits for verification, for operators; undefined without one. */
  get unverified(): string | undefined {
    const newest = [...this.#pending.values()].flatMap((kept) => [...kept.values()]).at(-1)
    if (!newest) return undefined
    return `a cluster at ${whereOf(newest.by)} claims to have replaced this primary (sent by DR secondary "${newest.id}"): unseal this server, which then verifies the claim`
  }

  /** Throws a LinkError for an invalid claim (`unproven`), or `sealed` while this cluster cannot verify. */
  check(claim: PromotionClaim): void {
    const { address, by, id, proof, statement } = claim
    const verdict = this.#proofs.verify(statement, proof)
    if (verdict === 'valid') return void this.#pending.delete(id)
    if (verdict === 'sealed') {
      if (proof) this.#keep(claim)
      throw new LinkError('sealed', 'this primary is sealed and cannot verify the promotion: unseal it')
    }
    this.#alarms.raise('proof', id, { address, epoch: String(by.epoch), proof: verdict })
    throw new LinkError(
      'unproven',
      verdict === 'absent'
        ? `epoch ${by.epoch} was claimed without a proof of membership: unseal or upgrade the cluster that claims it`
        : 'invalid proof of membership: the secondary has other barrier keys than this primary',
    )
  }

  #keep(claim: PromotionClaim): void {
    const kept = this.#pending.get(claim.id) ?? new Map<string, PromotionClaim>()
    kept.delete(claim.address)
    kept.set(claim.address, claim)
    const [oldest] = kept.keys()
    if (kept.size > PENDING_CLAIMS_MAX && oldest !== undefined) kept.delete(oldest)
    this.#pending.set(claim.id, kept)
    this.#alarms.raise('claim', claim.id, { address: claim.address, by: whereOf(claim.by) })
  }

  /** Verifies and removes the claims that arrived while this cluster was sealed. */
  verifyPending(): VerifiedClaims {
    const kept = [...this.#pending]
    this.#pending.clear()
    const proven = kept.flatMap(([, claims]) => [...claims.values()].filter((claim) => this.#isProven(claim)))
    const unproven = kept.flatMap(([id]) => (proven.some((claim) => claim.id === id) ? [] : [id]))
    return { proven, unproven }
  }

  #isProven(claim: PromotionClaim): boolean {
    try {
      this.check(claim)
      return true
    } catch {
      return false
    }
  }

  /** For a revoked secondary. */
  forget(id: string): void {
    this.#pending.delete(id)
  }
}

/** The peer chooses these texts. */
function whereOf({ addresses, api }: NewerPrimary): string {
  return (api || addresses.join(', ')).slice(0, SHOWN_LENGTH_MAX)
}
