/**
 * The DR operation token: what a secondary takes instead of the tokens of its primary, whose entries it does not open. It
 * is made from key shares, has no end, and there is one: a new one takes the place of the one before.
 *
 * Stored is a code of it under a key of the barrier, so that an attacker who can write into the database cannot add a token. The
 * code covers a *generation*, a random name that changes with each token and is also kept outside the database
 * (`storage/sqlite/seen-mark.ts`): the entry of a token that was replaced or deleted is refused when it is put back. The token belongs to
 * this machine, survives a restart, and is no entry of the token store: as `X-Vault-Token` it is refused.
 */
import { timingSafeEqual } from 'node:crypto'
import type { HeldKey } from '../../storage/barrier/held-key.ts'
import type { TokenFactory } from '../../storage/seal/token-generation.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { sealed } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { randomName } from '../tokens/token-entry.ts'
import { type ReplicationSide } from './dr-replication.ts'

const PREFIX = 'hvs.'
const RANDOM_CHARACTERS = 24
const PURPOSE = 'outpost operation token'
const GENERATION_CHARACTERS = 16
const CODE_BYTES = 32
const NOT_NEWEST =
  'this operation token was valid once and is not any more: its entry was put back into the database, or secrets.db.seen beside it ' +
  'was removed or replaced. Generate a new operation token'
const OLD_FORMAT = 'this operation token was made by an older version: generate a new operation token'

export interface OperationTokenParts {
  readonly standby: HeldKey
  /** Undefined where there is no replication. */
  readonly side: () => ReplicationSide | undefined
  readonly logger: Pick<Logger, 'error'>
}

export class OperationToken implements TokenFactory {
  readonly tokenLength = PREFIX.length + RANDOM_CHARACTERS
  readonly hidesNonce = true
  readonly #parts: OperationTokenParts

  constructor(parts: OperationTokenParts) {
    this.#parts = parts
  }

  create(): { readonly token: string; readonly commit: () => Promise<unknown> } {
    const token = PREFIX + randomName(RANDOM_CHARACTERS)
    const generation = randomName(GENERATION_CHARACTERS)
    const commit = async () => {
      const entry = Buffer.concat([Buffer.from(generation, 'latin1'), this.#codeOf(generation, token)])
      await this.#parts.side()?.operationToken.write(entry, generation)
    }
    return { token, commit }
  }

  /**
   * Throws unless `given` is the token: a Rejection (400) where nothing is given, (400) where the server is no secondary,
   * (403) for another one, and a Refusal (503) while nothing can be told, as the server is sealed.
   */
  check(given: string): ReplicationSide {
    const side = this.side()
    if (given === '') throw new Rejection(400, 'DR operation token was not provided')
    if (!this.#parts.standby.isHeld) throw sealed()
    const refusal = this.#refusal(side, given)
    if (refusal !== undefined) throw new Rejection(403, refusal)
    return side
  }

  /** Why the token is not valid; undefined for the one that is. */
  #refusal({ operationToken }: ReplicationSide, given: string): string | undefined {
    const entry = Buffer.from(operationToken.read() ?? [])
    if (entry.length === CODE_BYTES && timingSafeEqual(entry, this.#codeOf('', given))) return OLD_FORMAT
    if (entry.length !== GENERATION_CHARACTERS + CODE_BYTES) return 'permission denied'
    const generation = entry.toString('latin1', 0, GENERATION_CHARACTERS)
    if (!timingSafeEqual(entry.subarray(GENERATION_CHARACTERS), this.#codeOf(generation, given))) {
      return 'permission denied'
    }
    if (generation === operationToken.generation) return undefined
    this.#parts.logger.error('an operation token was refused: its entry in the database is not the newest one')
    return NOT_NEWEST
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

  #codeOf(generation: string, token: string): Buffer {
    return this.#parts.standby.codeOf(PURPOSE, generation + token)
  }
}
