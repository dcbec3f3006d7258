/** Login enforcements: which logins need a code, and of which methods one. */
import { randomUUID } from 'node:crypto'
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { StoredSetting } from '../settings/stored-setting.ts'

const enforcementSchema = v.object({
  id: v.string(),
  name: v.string(),
  /** A code of one of them is enough. */
  methodIds: v.array(v.string()),
  /** A login that fits one of these lists needs it. */
  mountAccessors: v.array(v.string()),
  mountTypes: v.array(v.string()),
  groupIds: v.array(v.string()),
  entityIds: v.array(v.string()),
})

export type Enforcement = v.InferOutput<typeof enforcementSchema>

/** What of a login enforcements look at. */
export interface LoginFacts {
  /** Of the entity, and of those that became a part of it. */
  readonly entityIds: readonly string[]
  readonly mountAccessor: string
  readonly mountType: string
  /** Groups that the entity is in, itself or by other groups. */
  readonly groupIds: () => readonly string[]
}

/** Each login looks through all of them. */
const ENFORCEMENTS_MAX = 200

export class Enforcements {
  readonly #setting: StoredSetting<Enforcement[]>

  /** `storage` is all of the barrier. */
  constructor(storage: Storage) {
    this.#setting = new StoredSetting(storage, 'sys/mfa/enforcements', v.array(enforcementSchema), [])
  }

  get all(): readonly Enforcement[] {
    return this.#setting.value
  }

  find(name: string): Enforcement | undefined {
    return this.all.find((each) => each.name === name)
  }

  /** Those that a login must satisfy. */
  for({ entityIds, groupIds, mountAccessor, mountType }: LoginFacts): Enforcement[] {
    if (this.all.length === 0) return []
    let groups: ReadonlySet<string> | undefined
    const isInOne = (wanted: readonly string[]) => {
      if (wanted.length === 0) return false
      groups ??= new Set(groupIds())
      return wanted.some((id) => groups?.has(id))
    }
    return this.all.filter(
      (each) =>
        each.mountAccessors.includes(mountAccessor) ||
        each.mountTypes.includes(mountType) ||
        entityIds.some((id) => each.entityIds.includes(id)) ||
        isInOne(each.groupIds),
    )
  }

  /** Makes one, or replaces all of the one with that name. */
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

export function toldEnforcement(each: Enforcement): Record<string, unknown> {
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
