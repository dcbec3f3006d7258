/**
 * Authenticates tokens of the primary on its DR secondary, whose core is not active. The entries are replicated, and the held root
 * key decrypts those of tokens, policies and entities. Nothing can be written, so a token with limited uses is refused.
 */
import type { StandbyEntries, StandbyKey } from '../../storage/barrier/standby-key.ts'
import { Storage } from '../../storage/barrier/storage.ts'
import { denied, type EngineCall, type EngineVerb } from '../../engines/framework/engine.ts'
import { sealed } from '../../platform/errors.ts'
import { EntityPolicies, IdentityStore } from '../identity/identity.ts'
import { readRecords } from '../mounts/mount-record.ts'
import type { Decision } from '../policies/acl.ts'
import { PolicyStore } from '../policies/policy-store.ts'
import { isBatch } from '../tokens/token-batch.ts'
import { TokenStore } from '../tokens/token-store.ts'

export class DrTokenAuth {
  readonly #standby: StandbyKey
  readonly #now: () => number

  constructor(standby: StandbyKey, now: () => number) {
    this.#standby = standby
    this.#now = now
  }

  /**
   * Rejects with a Rejection (403) unless the token of the call is authorized for the path, with `sudo` if `needsSudo`. Rejects with
   * a Refusal (503) while the server is sealed, and with EntriesChanged if the entries differ from those of the primary.
   */
  async require(call: EngineCall, verb: EngineVerb, needsSudo = false): Promise<void> {
    if (!this.#standby.isHeld) throw sealed()
    const { token } = call
    if (token === undefined || !(await this.#isAllowed(token, call, verb, needsSudo))) throw denied()
  }

  /** True if `given` is a batch token that is authorized in place of an operation token. Rejects as `require`. */
  async isBatchAllowed(given: string, call: EngineCall): Promise<boolean> {
    return this.#standby.isHeld && isBatch(given) && (await this.#isAllowed(given, call, 'update', false))
  }

  /** Access is granted on verified entries only. Verification reads all entries, so a refusal is decided without it. */
  async #isAllowed(token: string, call: EngineCall, verb: EngineVerb, needsSudo: boolean): Promise<boolean> {
    const decide = (entries: StandbyEntries) => {
      const decision = this.#decide(entries, token, call, verb)
      return decision?.allowed === true && (!needsSudo || decision.sudo)
    }
    return decide(this.#standby.entries()) && (await this.#standby.verified(decide))
  }

  #decide(
    entries: StandbyEntries,
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
