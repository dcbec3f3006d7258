/**
 * Proofs of membership: codes under a key that only unsealed members of the replication set have. The key is derived from the
 * keyring, below the barrier; this module gets a function that makes codes (`MembershipKey`) and never the key.
 *
 * A certificate of the link proves who calls, but its key lies in the database as it is, because a sealed secondary has to
 * dial. What costs the primary its role, and what a synchronous commit relies on, is therefore believed only with a proof: the
 * notice of a promotion, a higher epoch, an acknowledgement, and the primary's answer to a notice.
 *
 * Each proof is a code of a statement. A statement names its kind, the replication set, the cluster, the secondary, and a nonce
 * that the verifier chose for this connection, so a proof is good on one connection and for one statement.
 */
import { timingSafeEqual } from 'node:crypto'
import type { CommitPosition } from '../../storage/store/replica.ts'
import type { MembershipKey } from '../state/parts.ts'

/** `sealed`: this cluster is sealed and cannot tell. */
export type Verdict = 'valid' | 'invalid' | 'absent' | 'sealed'

type Word = string | number | boolean
export type Statement = readonly [kind: string, ...words: Word[]]

/** Of a connection: who the secondary is, and the primary's nonce. */
export interface Session {
  readonly id: string
  readonly nonce: Uint8Array
}

interface NewPrimary {
  readonly epoch: number
  readonly addresses: readonly string[]
  readonly api: string
}

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')
const wordsOf = ({ checksum, epoch, sequence }: CommitPosition): Word[] => [sequence, epoch, base64(checksum)]

/** The statements that members make. Both ends build them from what they know, so nothing that is proven is left out. */
export const statements = {
  join: ({ id, nonce }: Session, epoch: number): Statement => ['join', id, base64(nonce), epoch],
  follow: ({ id, nonce }: Session, epoch: number): Statement => ['follow', id, base64(nonce), epoch],
  /** The secondary has everything up to this position on its disk. */
  acknowledgement: ({ id, nonce }: Session, position: CommitPosition, isWhole: boolean): Statement => [
    'acknowledgement',
    id,
    base64(nonce),
    ...wordsOf(position),
    isWhole,
  ],
  /** This secondary was promoted. */
  fence: ({ id, nonce }: Session, { addresses, api, epoch }: NewPrimary): Statement => [
    'fence',
    id,
    base64(nonce),
    epoch,
    api,
    ...addresses,
  ],
  /** The answer of the replaced primary, with the nonce of the notice. */
  fenced: (nonce: Uint8Array, epoch: number, rival: NewPrimary | undefined): Statement => [
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

  verify(statement: Statement, proof: Uint8Array | undefined): Verdict {
    if (proof === undefined) return this.isSealed ? 'sealed' : 'absent'
    const code = this.of(statement)
    if (!code) return 'sealed'
    return code.length === proof.length && timingSafeEqual(code, proof) ? 'valid' : 'invalid'
  }
}
