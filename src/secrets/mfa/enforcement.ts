/** Login enforcements: the logins that require an MFA code, and the accepted methods. */
import { randomUUID } from 'node:crypto'
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { StoredSetting } from '../settings/stored-setting.ts'

const enforcementSchema = v.object({
  id: v.string(),
  name: v.string(),
  /** A code of one of these methods is sufficient. */
  methodIds: v.array(v.string()),
  /** The enforcement applies to a login that matches one of these lists. */
  mountAccessors: v.array(v.string()),
  mountTypes: v.array(v.string()),
  groupIds: v.array(v.string()),
  entityIds: v.array(v.string()),
})

export type Enforcement = v.InferOutput<typeof enforcementSchema>

/** The facts of a login that enforcements match. */
export interface LoginFacts {
  /** The entity and the entities that were merged into it. */
  readonly entityIds: readonly string[]
  readonly mountAccessor: string
  readonly mountType: string
  /** Groups that the entity is a direct or indirect member of. */
  readonly groupIds: () => readonly string[]
}

/** Each login is compared with all enforcements. */
const ENFORCEMENTS_MAX = 200

export class Enforcements {
  readonly #setting: StoredSetting<Enforcement[]>

  /** `storage`: the whole barrier. */
  constructor(storage: Storage) {
    this.#setting = new StoredSetting(storage, 'sys/mfa/enforcements', v.array(enforcementSchema), [])
  }

  get all(): readonly Enforcement[] {
    return this.#setting.value
  }

  find(name: string): Enforcement | undefined {
    return this.all.find((each) => each.name === name)
  }

  /** The enforcements that a login must satisfy. */
  matching({ entityIds, groupIds, mountAccessor, mountType }: LoginFacts): Enforcement[] {
    if (this.all.length === 0) return []
    let groups: ReadonlySet<string> | undefined
    const isMember = (ids: readonly string[]) => {
      if (ids.length === 0) return false
      groups ??= new Set(groupIds())
      return ids.some((id) => groups?.has(id))
    }
    return this.all.filter(
      (each) =>
        each.mountAccessors.includes(mountAccessor) ||
        each.mountTypes.includes(mountType) ||
        entityIds.some((id) => each.entityIds.includes(id)) ||
        isMember(each.groupIds),
    )
  }

  /** Creates an enforcement, or replaces the one with that name. */
  async write(enforcement: Omit<Enforcement, 'id'>): Promise<void> {
    await this.#setting.change((pending) => {
      const before = pending.find(({ name }) => name === enforcement.name)
      if (!before && pending.length >= ENFORCEMENTS_MAX) {
        throw new Rejection(400, `at most ${ENFORCEMENTS_MAX} login enforcements`)
      }
      const written = { id: before?.id ?? randomUUID(), ...enforcement }
      return before ? pending.map((each) => (each === before ? written : each)) : [...pending, written]
    })
  }

  async remove(name: string): Promise<void> {
    if (!this.find(name)) return
    await this.#setting.change((pending) => pending.filter((each) => each.name !== name))
  }
}

export function enforcementInfo(each: Enforcement): Record<string, unknown> {
  return {
    auth_method_accessors: each.mountAccessors,
    auth_method_types: each.mountTypes,
    id: each.id,
    identity_entity_ids: each.entityIds,
    identity_group_ids: each.groupIds,
    mfa_method_ids: each.methodIds,
    name: each.name,
  }
}
