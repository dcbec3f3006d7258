/**
 * Proofs of membership: HMACs under a key that only unsealed members of the replication set have. The key is derived from the
 * keyring below the barrier; this module has a function that computes codes (`MembershipKey`) and never the key.
 *
 * The certificate authenticates a peer, but its private key is stored unencrypted, because a sealed secondary has to connect.
 * Therefore these need a proof: the notice of a promotion, a higher epoch, an acknowledgement that a synchronous commit relies on, and
 * the primary's reply to a notice.
 *
 * A proof is the code of a statement. A statement has its kind, the replication set, the cluster, the secondary, and a nonce
 * that the verifier chose for this connection, so a proof is valid for one connection and one statement.
 */
import { timingSafeEqual } from 'node:crypto'
import type { CommitPosition } from '../../storage/store/replica.ts'
import type { MembershipKey } from '../state/replication-context.ts'

/** `sealed`: this cluster is sealed and cannot verify. */
export type ProofVerdict = 'valid' | 'invalid' | 'absent' | 'sealed'

type StatementValue = string | number | boolean
export type Statement = readonly [kind: string, ...words: StatementValue[]]

/** What proofs on one connection are bound to: ID of the secondary and nonce of the primary. */
export interface ProofSession {
  readonly id: string
  readonly nonce: Uint8Array
}

interface PrimaryAnnouncement {
  readonly epoch: number
  readonly addresses: readonly string[]
  readonly api: string
}

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')
const wordsOf = ({ checksum, epoch, sequence }: CommitPosition): StatementValue[] => [sequence, epoch, base64(checksum)]

/** The statements of members. Each end builds them from its own data, so a proof covers all of it. */
export const statements = {
  join: ({ id, nonce }: ProofSession, epoch: number): Statement => ['join', id, base64(nonce), epoch],
  follow: ({ id, nonce }: ProofSession, epoch: number): Statement => ['follow', id, base64(nonce), epoch],
  /** The secondary has everything up to this position on its disk. */
  acknowledgement: ({ id, nonce }: ProofSession, position: CommitPosition, isWhole: boolean): Statement => [
    'acknowledgement',
    id,
    base64(nonce),
    ...wordsOf(position),
    isWhole,
  ],
  /** This secondary was promoted. */
  fence: ({ id, nonce }: ProofSession, { addresses, api, epoch }: PrimaryAnnouncement): Statement => [
    'fence',
    id,
    base64(nonce),
    epoch,
    api,
    ...addresses,
  ],
  /** The answer of the replaced primary, with the nonce of the notice. */
  fenced: (nonce: Uint8Array, epoch: number, rival: PrimaryAnnouncement | undefined): Statement => [
    'fenced',
    base64(nonce),
    epoch,
    ...(rival ? [rival.epoch, rival.api, ...rival.addresses] : []),
  ],
}

export class Proofs {
  readonly #key: MembershipKey
  readonly #set: () => { readonly setId: string; readonly clusterId: string }

  constructor(key: MembershipKey, set: () => { readonly setId: string; readonly clusterId: string }) {
    this.#key = key
    this.#set = set
  }

  /** Whether this cluster can make and verify proofs. */
  get isSealed(): boolean {
    return this.#key.isSealed
  }

  /** Undefined while this cluster is sealed. */
  of(statement: Statement): Buffer | undefined {
    const { clusterId, setId } = this.#set()
    return this.#key.codeOf(JSON.stringify([setId, clusterId, ...statement]))
  }

  verify(statement: Statement, proof: Uint8Array | undefined): ProofVerdict {
    if (proof === undefined) return this.isSealed ? 'sealed' : 'absent'
    const code = this.of(statement)
    if (!code) return 'sealed'
    return code.length === proof.length && timingSafeEqual(code, proof) ? 'valid' : 'invalid'
  }
}
