/**
 * Tokens of the primary on its secondary, whose core is closed: the entries are there, and the held root key opens those
 * that tell whose a token is. Nothing is written, so a token of limited uses is refused here.
 */
import type { HeldEntries, HeldKey } from '../../storage/barrier/held-key.ts'
import { Storage } from '../../storage/barrier/storage.ts'
import { denied, type EngineCall, type EngineVerb } from '../../engines/framework/engine.ts'
import { sealed } from '../../platform/errors.ts'
import { EntityPolicies, IdentityStore } from '../identity/identity.ts'
import { readRecords } from '../mounts/mount-record.ts'
import type { Decision } from '../policies/acl.ts'
import { PolicyStore } from '../policies/policy-store.ts'
import { isBatch } from '../tokens/token-batch.ts'
import { TokenStore } from '../tokens/token-store.ts'

export class StandbyRights {
  readonly #standby: HeldKey
  readonly #now: () => number

  constructor(standby: HeldKey, now: () => number) {
    this.#standby = standby
    this.#now = now
  }

  /**
   * Rejects with a Rejection (403) unless the token of the call may do this at its path, with `sudo` where that is needed; with a
   * Refusal: (503) while it is sealed, EntriesChanged where the entries are not those of the primary.
   */
  async require(call: EngineCall, verb: EngineVerb, needsSudo = false): Promise<void> {
    if (!this.#standby.isHeld) throw sealed()
    const { token } = call
    if (token === undefined || !(await this.#isAllowed(token, call, verb, needsSudo))) throw denied()
  }

  /** Whether a batch token, which is made ahead for the night of the disaster, stands for an operation token. Rejects as `require`. */
  async isBatchAllowed(given: string, call: EngineCall): Promise<boolean> {
    return this.#standby.isHeld && isBatch(given) && (await this.#isAllowed(given, call, 'update', false))
  }

  /** A right is granted upon verified entries only; verifying costs a read of all of them, so it comes second. */
  async #isAllowed(token: string, call: EngineCall, verb: EngineVerb, needsSudo: boolean): Promise<boolean> {
    const decide = (entries: HeldEntries) => {
      const decision = this.#decide(entries, token, call, verb)
      return decision?.allowed === true && (!needsSudo || decision.sudo)
    }
    return decide(this.#standby.entries()) && (await this.#standby.verified(decide))
  }

  #decide(
    entries: HeldEntries,
    token: string,
    { path, data, remote }: EngineCall,
    operation: EngineVerb,
  ): Decision | undefined {
    const storage = new Storage(entries)
    const known = new TokenStore(storage).lookup(token, this.#now())
    if (!known?.isAllowedFrom(remote) || known.entry.usesLeft !== 0) return undefined
    const enabled = readRecords(storage).filter(({ isLeaving }) => !isLeaving)
    const accessors = new Set(enabled.map(({ accessor }) => accessor))
    const entities = new EntityPolicies(new IdentityStore(storage, (accessor) => accessors.has(accessor)))
    const names = entities.of(known.entry)
    if (!names) return undefined
    const acl = new PolicyStore(storage).acl(names, this.#now(), entities.factsOf(known.entry))
    return acl.decide({ operation, path: `sys/${path}`, data, wrapTtlSeconds: undefined })
  }
}
