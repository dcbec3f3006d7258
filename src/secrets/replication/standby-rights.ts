/**
 * Tokens of the primary on its secondary, whose core is closed: the entries are there, and the held root key opens those
 * that tell whose a token is. Nothing is written, so a token of limited uses is refused here.
 */
import type { HeldKey } from '../../barrier/held-key.ts'
import { Storage } from '../../barrier/storage.ts'
import { denied, type EngineCall, type EngineVerb } from '../../engines/engine.ts'
import { sealed } from '../../kit/errors.ts'
import { EntityPolicies } from '../identity/entity-policies.ts'
import { IdentityStore } from '../identity/identity.ts'
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
   * Throws a Rejection (403) unless the token of the call may do this at its path, with `sudo` where that is needed; a Refusal
   * (503) while it is sealed.
   */
  require(call: EngineCall, verb: EngineVerb, needsSudo = false): void {
    if (!this.#standby.isHeld) throw sealed()
    const decision = call.token === undefined ? undefined : this.#decide(call.token, call, verb)
    if (!decision?.allowed || (needsSudo && !decision.sudo)) throw denied()
  }

  /** Whether a batch token, which is made ahead for the night of the disaster, stands for an operation token. */
  isBatchAllowed(given: string, call: EngineCall): boolean {
    return this.#standby.isHeld && isBatch(given) && this.#decide(given, call, 'update')?.allowed === true
  }

  #decide(token: string, { path, data, remote }: EngineCall, operation: EngineVerb): Decision | undefined {
    const storage = new Storage(this.#standby.entries())
    const known = new TokenStore(storage).known(token, this.#now())
    if (!known?.mayComeFrom(remote) || known.entry.usesLeft !== 0) return undefined
    const enabled = readRecords(storage).filter(({ isLeaving }) => !isLeaving)
    const accessors = new Set(enabled.map(({ accessor }) => accessor))
    const entities = new EntityPolicies(new IdentityStore(storage, (accessor) => accessors.has(accessor)))
    const names = entities.of(known.entry)
    if (!names) return undefined
    const acl = new PolicyStore(storage).acl(names, this.#now(), entities.factsOf(known.entry))
    return acl.decide({ operation, path: `sys/${path}`, data, wrapTtlSeconds: undefined })
  }
}
