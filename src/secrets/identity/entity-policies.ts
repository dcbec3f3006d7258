/** The policies of a token and its entity together. */
import type { Caller } from '../../engines/framework/engine.ts'
import type { EntityFacts } from '../policies/policy-template.ts'
import type { IdentityStore, Rights } from './identity.ts'

type Holder = Pick<Caller, 'entityId' | 'policies'>

export class EntityPolicies {
  readonly #identity: IdentityStore
  /** The same list again for the same rights: policies are compiled by the list. */
  readonly #united = new WeakMap<Rights, WeakMap<readonly string[], readonly string[]>>()

  constructor(identity: IdentityStore) {
    this.#identity = identity
  }

  /** Undefined where the entity is disabled or gone: then there are no rights at all. */
  of({ entityId, policies }: Holder): readonly string[] | undefined {
    if (entityId === '') return policies
    const rights = this.#identity.rights(entityId)
    if (!rights || rights.disabled) return undefined
    return rights.policies.length === 0 ? policies : this.#union(rights, policies)
  }

  #union(rights: Rights, policies: readonly string[]): readonly string[] {
    let known = this.#united.get(rights)
    if (!known) this.#united.set(rights, (known = new WeakMap()))
    let union = known.get(policies)
    if (!union) known.set(policies, (union = [...new Set([...policies, ...rights.policies])]))
    return union
  }

  factsOf({ entityId }: Holder): EntityFacts | undefined {
    return entityId === '' ? undefined : this.#identity.rights(entityId)?.facts
  }
}
