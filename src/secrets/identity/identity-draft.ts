/**
 * A change of identity while it is put together: it reads what is pending, and what it has changed itself, so every index
 * entry is written in the same commit as the record that it belongs to.
 */
import { randomUUID } from 'node:crypto'
import type { Batch, Storage } from '../../storage/barrier/storage.ts'
import { BatchBuilder } from '../../engines/framework/records.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { ALIASES_MAX } from './identity-limits.ts'
import {
  type Alias,
  encodeIdentity,
  type Entity,
  type Group,
  identityPaths,
  parseEntity,
  parseGroup,
} from './identity-record.ts'

export type Hash = (text: string) => string

/** Names are compared without regard to case. */
export function nameHash(hash: Hash, name: string): string {
  return hash(`name\0${name.toLowerCase()}`)
}

export function aliasHash(hash: Hash, mountAccessor: string, name: string): string {
  return hash(`alias\0${mountAccessor}\0${name}`)
}

/** Groups of directories are compared without regard to case, as directories compare them. */
export function groupAliasHash(hash: Hash, mountAccessor: string, name: string): string {
  return hash(`group-alias\0${mountAccessor}\0${name.toLowerCase()}`)
}

/** What an alias is found by. */
type AliasKey = Pick<Alias, 'mountAccessor' | 'name'>

export class IdentityDraft {
  readonly nowMs: number
  /** Entities whose rights change; empty while `isWide`. */
  readonly touched = new Set<string>()
  /** Entities that are removed, with the ID of that into which each is merged. */
  readonly removed = new Map<string, string | undefined>()
  /** What many entities have may change. */
  isWide = false
  readonly #changes: BatchBuilder
  /** By group, members that are removed: a group of ten thousand is written once, however many of them leave it. */
  readonly #leaving = new Map<string, Set<string>>()
  readonly #hash: Hash

  constructor(storage: Storage, hash: Hash, nowMs: number) {
    this.#changes = new BatchBuilder(storage)
    this.#hash = hash
    this.nowMs = nowMs
  }

  get batch(): Batch {
    for (const id of this.#leaving.keys()) this.#settle(id)
    return this.#changes.batch
  }

  #id(path: string): string | undefined {
    return this.#changes.get(path)?.toString('latin1')
  }

  entity(id: string): Entity | undefined {
    const bytes = isId(id) ? this.#changes.get(identityPaths.entity(id)) : undefined
    return bytes && parseEntity(bytes)
  }

  entityNamed(name: string): Entity | undefined {
    const id = this.#id(identityPaths.entityName(nameHash(this.#hash, name)))
    return id === undefined ? undefined : this.entity(id)
  }

  entityOfAlias(mountAccessor: string, name: string): Entity | undefined {
    const id = this.#id(identityPaths.alias(aliasHash(this.#hash, mountAccessor, name)))
    return id === undefined ? undefined : this.entity(id)
  }

  entityOfAliasId(aliasId: string): Entity | undefined {
    const id = isId(aliasId) ? this.#id(identityPaths.aliasId(aliasId)) : undefined
    return id === undefined ? undefined : this.entity(id)
  }

  newEntity(name: string): Entity {
    const id = randomUUID()
    return {
      format: 1,
      id,
      // The whole ID: two names made by the server are never alike, however many entities there are.
      name: name === '' ? `entity_${id}` : name,
      metadata: null,
      policies: [],
      disabled: false,
      aliases: [],
      mergedIds: [],
      createdAtMs: this.nowMs,
      updatedAtMs: this.nowMs,
    }
  }

  /** Throws a Rejection (400) for a name that another one has. */
  putEntity(entity: Entity): void {
    const before = this.entity(entity.id)
    if (entity.aliases.length > ALIASES_MAX) throw new Rejection(400, `an entity has at most ${ALIASES_MAX} aliases`)
    const holder = this.entityNamed(entity.name)
    if (holder && holder.id !== entity.id) throw new Rejection(400, 'entity name is already in use')
    const changed = { ...entity, updatedAtMs: this.nowMs }
    const [had, has] = [new Set(before ? this.#indexOf(before) : []), new Set(this.#indexOf(changed))]
    for (const path of had) if (!has.has(path)) this.#changes.delete(path)
    for (const path of has) if (!had.has(path)) this.#changes.put(path, Buffer.from(entity.id, 'latin1'))
    this.#changes.put(identityPaths.entity(entity.id), encodeIdentity(changed))
    this.touched.add(entity.id)
  }

  /** Notes which groups an auth method reports for an alias of an entity; nothing where these are the same as before. */
  reportGroups(entityId: string, { mountAccessor, name }: AliasKey, groups: readonly string[]): void {
    const entity = this.entity(entityId)
    const at = entity?.aliases.findIndex((each) => each.mountAccessor === mountAccessor && each.name === name) ?? -1
    const alias = entity?.aliases[at]
    if (!entity || !alias || alias.groups.join('\n') === groups.join('\n')) return
    const changed = { ...alias, groups: [...groups], updatedAtMs: this.nowMs }
    this.putEntity({ ...entity, aliases: entity.aliases.with(at, changed) })
  }

  /** By what else an entity is found. */
  #indexOf({ aliases, id, mergedIds, name }: Entity): string[] {
    return [
      identityPaths.entityName(nameHash(this.#hash, name)),
      ...mergedIds.map(identityPaths.merged),
      ...aliases.flatMap((alias) => [
        identityPaths.aliasId(alias.id),
        identityPaths.alias(aliasHash(this.#hash, alias.mountAccessor, alias.name)),
        ...alias.groups.map((group) => this.#reported(alias, group) + id),
      ]),
    ]
  }

  #reported({ mountAccessor }: Alias, group: string): string {
    return identityPaths.reported(groupAliasHash(this.#hash, mountAccessor, group))
  }

  /** Removes an entity, and from the groups of `memberOf`; `into` is the ID of that into which it is merged. */
  deleteEntity(entity: Entity, memberOf: readonly string[], into?: string): void {
    this.removed.set(entity.id, into)
    for (const path of this.#indexOf(entity)) this.#changes.delete(path)
    this.#changes.delete(identityPaths.entity(entity.id))
    for (const groupId of memberOf) {
      this.#changes.delete(identityPaths.membership(entity.id, groupId))
      const leaving = this.#leaving.get(groupId) ?? new Set()
      this.#leaving.set(groupId, leaving.add(entity.id))
    }
    this.touched.add(entity.id)
    for (const id of entity.mergedIds) this.touched.add(id)
  }

  newAlias(alias: Pick<Alias, 'name' | 'mountAccessor'> & Partial<Alias>): Alias {
    return {
      id: randomUUID(),
      metadata: null,
      customMetadata: null,
      createdAtMs: this.nowMs,
      updatedAtMs: this.nowMs,
      mergedFrom: [],
      groups: [],
      ...alias,
    }
  }

  /** Writes a group without the members that leave it. */
  #settle(id: string): void {
    const leaving = this.#leaving.get(id)
    if (!leaving || !this.#leaving.delete(id)) return
    const group = this.group(id)
    if (!group) return
    this.#put({ ...group, memberEntityIds: group.memberEntityIds.filter((each) => !leaving.has(each)) })
  }

  group(id: string): Group | undefined {
    this.#settle(id)
    const bytes = isId(id) ? this.#changes.get(identityPaths.group(id)) : undefined
    return bytes && parseGroup(bytes)
  }

  groupNamed(name: string): Group | undefined {
    const id = this.#id(identityPaths.groupName(nameHash(this.#hash, name)))
    return id === undefined ? undefined : this.group(id)
  }

  groupOfAlias(mountAccessor: string, name: string): Group | undefined {
    const id = this.#id(identityPaths.groupAlias(groupAliasHash(this.#hash, mountAccessor, name)))
    return id === undefined ? undefined : this.group(id)
  }

  groupOfAliasId(aliasId: string): Group | undefined {
    const id = isId(aliasId) ? this.#id(identityPaths.groupAliasId(aliasId)) : undefined
    return id === undefined ? undefined : this.group(id)
  }

  newGroup(name: string, type: Group['type']): Group {
    const id = randomUUID()
    return {
      format: 1,
      id,
      name: name === '' ? `group_${id}` : name,
      type,
      metadata: null,
      policies: [],
      memberEntityIds: [],
      memberGroupIds: [],
      parentGroupIds: [],
      alias: null,
      modifyIndex: 0,
      createdAtMs: this.nowMs,
      updatedAtMs: this.nowMs,
    }
  }

  /** Throws a Rejection (400) for a name that is taken, a member that is not there, and a group that would hold itself. */
  putGroup(group: Group): void {
    const before = this.group(group.id)
    const holder = this.groupNamed(group.name)
    if (holder && holder.id !== group.id) throw new Rejection(400, 'group name is already in use')
    this.#checkMembers(group, before)
    this.#linkMembers(group, before)
    for (const path of before ? this.#groupIndexOf(before) : []) this.#changes.delete(path)
    for (const path of this.#groupIndexOf(group)) this.#changes.put(path, Buffer.from(group.id, 'latin1'))
    this.#put(group)
  }

  #put(group: Group): void {
    const changed = { ...group, updatedAtMs: this.nowMs, modifyIndex: group.modifyIndex + 1 }
    this.#changes.put(identityPaths.group(group.id), encodeIdentity(changed))
    this.isWide = true
  }

  #checkMembers({ id, memberEntityIds, memberGroupIds }: Group, before: Group | undefined): void {
    const known = new Set(before?.memberEntityIds)
    const missing = memberEntityIds.find((each) => !known.has(each) && !this.entity(each))
    if (missing !== undefined) throw new Rejection(400, `invalid entity ID ${JSON.stringify(missing.slice(0, 64))}`)
    for (const each of memberGroupIds) {
      if (each !== id && !this.group(each)) {
        throw new Rejection(400, `invalid member group ID ${JSON.stringify(each.slice(0, 64))}`)
      }
      if (this.#reaches(each, id)) {
        throw new Rejection(400, `cyclic relationship detected for member group ID ${JSON.stringify(each)}`)
      }
    }
  }

  /** Whether `to` is the group `from` or is below it. */
  #reaches(from: string, to: string): boolean {
    const seen = new Set([from])
    for (const id of seen) {
      if (id === to) return true
      for (const next of this.group(id)?.memberGroupIds ?? []) seen.add(next)
    }
    return false
  }

  #linkMembers(group: Group, before: Group | undefined): void {
    const [had, has] = [new Set(before?.memberEntityIds), new Set(group.memberEntityIds)]
    for (const id of had) if (!has.has(id)) this.#changes.delete(identityPaths.membership(id, group.id))
    for (const id of has) {
      if (!had.has(id)) this.#changes.put(identityPaths.membership(id, group.id), Buffer.from(group.id, 'latin1'))
    }
    const [hadGroups, hasGroups] = [new Set(before?.memberGroupIds), new Set(group.memberGroupIds)]
    for (const id of new Set([...hadGroups, ...hasGroups])) {
      if (hadGroups.has(id) === hasGroups.has(id)) continue
      const member = this.group(id)
      if (!member) continue
      const others = member.parentGroupIds.filter((each) => each !== group.id)
      this.#put({ ...member, parentGroupIds: hasGroups.has(id) ? [...others, group.id] : others })
    }
  }

  #groupIndexOf({ alias, name }: Group): string[] {
    const paths: string[] = [identityPaths.groupName(nameHash(this.#hash, name))]
    if (!alias) return paths
    const hash = groupAliasHash(this.#hash, alias.mountAccessor, alias.name)
    return [...paths, identityPaths.groupAliasId(alias.id), identityPaths.groupAlias(hash)]
  }

  deleteGroup(group: Group): void {
    this.#linkMembers({ ...group, memberEntityIds: [], memberGroupIds: [] }, group)
    for (const path of this.#groupIndexOf(group)) this.#changes.delete(path)
    for (const id of group.parentGroupIds) {
      const parent = this.group(id)
      if (parent) this.#put({ ...parent, memberGroupIds: parent.memberGroupIds.filter((each) => each !== group.id) })
    }
    this.#changes.delete(identityPaths.group(group.id))
    this.isWide = true
  }
}

/** A text that may be a part of a path. */
export function isId(id: string): boolean {
  return /^[\w-]{1,64}$/.test(id)
}
