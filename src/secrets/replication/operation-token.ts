/**
 * The DR operation token: what a secondary takes instead of the tokens of its primary, whose entries it does not open. It
 * is made from key shares, has no end, and there is one: a new one takes the place of the one before.
 *
 * Kept is a code of it under a key of the barrier, so that who can write into the database cannot put in a token of his
 * own. It belongs to this machine, survives a restart, and is no entry of the token store: as `X-Vault-Token` it is refused.
 */
import { timingSafeEqual } from 'node:crypto'
import type { HeldKey } from '../../barrier/held-key.ts'
import type { TokenSource } from '../../barrier/seal-generation.ts'
import { Rejection } from '../../engines/engine.ts'
import { sealed } from '../../kit/errors.ts'
import { randomName } from '../tokens/token-entry.ts'
import { type ReplicationSide } from './dr-replication.ts'

const PREFIX = 'hvs.'
const RANDOM_CHARACTERS = 24
const PURPOSE = 'outpost operation token'

export interface OperationTokenParts {
  readonly standby: HeldKey
  /** Undefined where there is no replication. */
  readonly side: () => ReplicationSide | undefined
}

export class OperationToken implements TokenSource {
  readonly tokenLength = PREFIX.length + RANDOM_CHARACTERS
  readonly hidesNonce = true
  readonly #parts: OperationTokenParts

  constructor(parts: OperationTokenParts) {
    this.#parts = parts
  }

  make(): { readonly token: string; readonly commit: () => Promise<unknown> } {
    const token = PREFIX + randomName(RANDOM_CHARACTERS)
    return { token, commit: async () => this.#parts.side()?.operationToken.write(this.#codeOf(token)) }
  }

  /**
   * Throws unless `given` is the token: a Rejection (400) where nothing is given, (400) where the server is no secondary,
   * (403) for another one, and a Refusal (503) while nothing can be told, as the server is sealed.
   */
  check(given: string): ReplicationSide {
    const side = this.side()
    if (given === '') throw new Rejection(400, 'DR operation token was not provided')
    if (!this.#parts.standby.isHeld) throw sealed()
    const [kept, code] = [side.operationToken.read(), this.#codeOf(given)]
    if (!kept || kept.length !== code.length || !timingSafeEqual(kept, code)) {
      throw new Rejection(403, 'permission denied')
    }
    return side
  }

  /** Throws a Rejection (400) where the server is no secondary. */
  side(): ReplicationSide {
    const side = this.#parts.side()
    if (side?.dr.mode === 'secondary') return side
    const mode = `the DR replication mode of this cluster is "${side?.dr.mode ?? 'disabled'}"`
    throw new Rejection(400, ['Not a DR secondary.', `${mode}: operation tokens are of a secondary`])
  }

  /** From then on none is good. */
  async remove(): Promise<void> {
    await this.#parts.side()?.operationToken.write(undefined)
  }

  #codeOf(token: string): Buffer {
    return this.#parts.standby.codeOf(PURPOSE, token)
  }
}
