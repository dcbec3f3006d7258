/**
 * A change of identity under construction. It reads pending records and its own changes, so each record and its index entries are written
 * in one commit.
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
  type IdentityGroup,
  identityPaths,
  parseEntity,
  parseGroup,
} from './identity-record.ts'

/** The keyed hash of names. */
export type NameHasher = (text: string) => string

/** Names are case-insensitive. */
export function nameHash(hash: NameHasher, name: string): string {
  return hash(`name\0${name.toLowerCase()}`)
}

export function aliasHash(hash: NameHasher, mountAccessor: string, name: string): string {
  return hash(`alias\0${mountAccessor}\0${name}`)
}

/** Group names are case-insensitive, as in directories. */
export function groupAliasHash(hash: NameHasher, mountAccessor: string, name: string): string {
  return hash(`group-alias\0${mountAccessor}\0${name.toLowerCase()}`)
}

type AliasKey = Pick<Alias, 'mountAccessor' | 'name'>

export class IdentityDraft {
  readonly nowMs: number
  /** IDs of the entities whose permissions change. */
  readonly changedEntities = new Set<string>()
  /** IDs of deleted entities, each with the ID of the entity that it was merged into. */
  readonly deletedEntities = new Map<string, string | undefined>()
  /** Whether groups change, and so the permissions of any number of entities. */
  changesGroups = false
  readonly #changes: BatchBuilder
  /** By group ID, members to remove. Collected, so that a group of ten thousand members is written once. */
  readonly #removedMembers = new Map<string, Set<string>>()
  readonly #hash: NameHasher

  constructor(storage: Storage, hash: NameHasher, nowMs: number) {
    this.#changes = new BatchBuilder(storage)
    this.#hash = hash
    this.nowMs = nowMs
  }

  get batch(): Batch {
    for (const id of this.#removedMembers.keys()) this.#removeMembers(id)
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
      // With the whole ID, generated names are unique.
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

  /** Throws a Rejection (400) for a name in use and for too many aliases. */
  putEntity(entity: Entity): void {
    const before = this.entity(entity.id)
    if (entity.aliases.length > ALIASES_MAX)
      throw new Rejection(400, `an entity can have at most ${ALIASES_MAX} aliases`)
    const sameName = this.entityNamed(entity.name)
    if (sameName && sameName.id !== entity.id) throw new Rejection(400, 'entity name is already in use')
    const changed = { ...entity, updatedAtMs: this.nowMs }
    const [old, index] = [new Set(before ? this.#indexOf(before) : []), new Set(this.#indexOf(changed))]
    for (const path of old) if (!index.has(path)) this.#changes.delete(path)
    for (const path of index) if (!old.has(path)) this.#changes.put(path, Buffer.from(entity.id, 'latin1'))
    this.#changes.put(identityPaths.entity(entity.id), encodeIdentity(changed))
    this.changedEntities.add(entity.id)
  }

  /** Stores the groups that an auth method reports for an alias, if they differ from the stored ones. */
  setReportedGroups(entityId: string, { mountAccessor, name }: AliasKey, groups: readonly string[]): void {
    const entity = this.entity(entityId)
    const at = entity?.aliases.findIndex((each) => each.mountAccessor === mountAccessor && each.name === name) ?? -1
    const alias = entity?.aliases[at]
    if (!entity || !alias || alias.groups.join('\n') === groups.join('\n')) return
    const changed = { ...alias, groups: [...groups], updatedAtMs: this.nowMs }
    this.putEntity({ ...entity, aliases: entity.aliases.with(at, changed) })
  }

  /** Paths of the index entries of an entity. */
  #indexOf({ aliases, id, mergedIds, name }: Entity): string[] {
    return [
      identityPaths.entityName(nameHash(this.#hash, name)),
      ...mergedIds.map(identityPaths.merged),
      ...aliases.flatMap((alias) => [
        identityPaths.aliasId(alias.id),
        identityPaths.alias(aliasHash(this.#hash, alias.mountAccessor, alias.name)),
        ...alias.groups.map((group) => this.#reportedFolder(alias, group) + id),
      ]),
    ]
  }

  #reportedFolder({ mountAccessor }: Alias, group: string): string {
    return identityPaths.reported(groupAliasHash(this.#hash, mountAccessor, group))
  }

  /** Deletes an entity and its memberships in `groupIds`. `mergedInto` is the ID of the entity that it is merged into. */
  deleteEntity(entity: Entity, groupIds: readonly string[], mergedInto?: string): void {
    this.deletedEntities.set(entity.id, mergedInto)
    for (const path of this.#indexOf(entity)) this.#changes.delete(path)
    this.#changes.delete(identityPaths.entity(entity.id))
    for (const groupId of groupIds) {
      this.#changes.delete(identityPaths.membership(entity.id, groupId))
      const removed = this.#removedMembers.get(groupId) ?? new Set()
      this.#removedMembers.set(groupId, removed.add(entity.id))
    }
    this.changedEntities.add(entity.id)
    for (const id of entity.mergedIds) this.changedEntities.add(id)
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

  /** Writes a group without its removed members. */
  #removeMembers(id: string): void {
    const removed = this.#removedMembers.get(id)
    if (!removed || !this.#removedMembers.delete(id)) return
    const group = this.group(id)
    if (!group) return
    this.#put({ ...group, memberEntityIds: group.memberEntityIds.filter((each) => !removed.has(each)) })
  }

  group(id: string): IdentityGroup | undefined {
    this.#removeMembers(id)
    const bytes = isId(id) ? this.#changes.get(identityPaths.group(id)) : undefined
    return bytes && parseGroup(bytes)
  }

  groupNamed(name: string): IdentityGroup | undefined {
    const id = this.#id(identityPaths.groupName(nameHash(this.#hash, name)))
    return id === undefined ? undefined : this.group(id)
  }

  groupOfAlias(mountAccessor: string, name: string): IdentityGroup | undefined {
    const id = this.#id(identityPaths.groupAlias(groupAliasHash(this.#hash, mountAccessor, name)))
    return id === undefined ? undefined : this.group(id)
  }

  groupOfAliasId(aliasId: string): IdentityGroup | undefined {
    const id = isId(aliasId) ? this.#id(identityPaths.groupAliasId(aliasId)) : undefined
    return id === undefined ? undefined : this.group(id)
  }

  newGroup(name: string, type: IdentityGroup['type']): IdentityGroup {
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

  /** Throws a Rejection (400) for a name in use, an unknown member, and a cycle of groups. */
  putGroup(group: IdentityGroup): void {
    const before = this.group(group.id)
    const sameName = this.groupNamed(group.name)
    if (sameName && sameName.id !== group.id) throw new Rejection(400, 'group name is already in use')
    this.#checkMembers(group, before)
    this.#linkMembers(group, before)
    for (const path of before ? this.#groupIndexOf(before) : []) this.#changes.delete(path)
    for (const path of this.#groupIndexOf(group)) this.#changes.put(path, Buffer.from(group.id, 'latin1'))
    this.#put(group)
  }

  #put(group: IdentityGroup): void {
    const changed = { ...group, updatedAtMs: this.nowMs, modifyIndex: group.modifyIndex + 1 }
    this.#changes.put(identityPaths.group(group.id), encodeIdentity(changed))
    this.changesGroups = true
  }

  #checkMembers({ id, memberEntityIds, memberGroupIds }: IdentityGroup, before: IdentityGroup | undefined): void {
    const known = new Set(before?.memberEntityIds)
    const missing = memberEntityIds.find((each) => !known.has(each) && !this.entity(each))
    if (missing !== undefined) throw new Rejection(400, `invalid entity ID ${JSON.stringify(missing.slice(0, 64))}`)
    for (const each of memberGroupIds) {
      if (each !== id && !this.group(each)) {
        throw new Rejection(400, `invalid member group ID ${JSON.stringify(each.slice(0, 64))}`)
      }
      if (this.#isDescendant(each, id)) {
        throw new Rejection(400, `cyclic relationship detected for member group ID ${JSON.stringify(each)}`)
      }
    }
  }

  /** Whether `to` is the group `from` or one of its descendants. */
  #isDescendant(from: string, to: string): boolean {
    const seen = new Set([from])
    for (const id of seen) {
      if (id === to) return true
      for (const next of this.group(id)?.memberGroupIds ?? []) seen.add(next)
    }
    return false
  }

  #linkMembers(group: IdentityGroup, before: IdentityGroup | undefined): void {
    const [old, members] = [new Set(before?.memberEntityIds), new Set(group.memberEntityIds)]
    for (const id of old) if (!members.has(id)) this.#changes.delete(identityPaths.membership(id, group.id))
    for (const id of members) {
      if (!old.has(id)) this.#changes.put(identityPaths.membership(id, group.id), Buffer.from(group.id, 'latin1'))
    }
    const [oldGroups, groups] = [new Set(before?.memberGroupIds), new Set(group.memberGroupIds)]
    for (const id of new Set([...oldGroups, ...groups])) {
      if (oldGroups.has(id) === groups.has(id)) continue
      const member = this.group(id)
      if (!member) continue
      const others = member.parentGroupIds.filter((each) => each !== group.id)
      this.#put({ ...member, parentGroupIds: groups.has(id) ? [...others, group.id] : others })
    }
  }

  #groupIndexOf({ alias, name }: IdentityGroup): string[] {
    const paths: string[] = [identityPaths.groupName(nameHash(this.#hash, name))]
    if (!alias) return paths
    const hash = groupAliasHash(this.#hash, alias.mountAccessor, alias.name)
    return [...paths, identityPaths.groupAliasId(alias.id), identityPaths.groupAlias(hash)]
  }

  deleteGroup(group: IdentityGroup): void {
    this.#linkMembers({ ...group, memberEntityIds: [], memberGroupIds: [] }, group)
    for (const path of this.#groupIndexOf(group)) this.#changes.delete(path)
    for (const id of group.parentGroupIds) {
      const parent = this.group(id)
      if (parent) this.#put({ ...parent, memberGroupIds: parent.memberGroupIds.filter((each) => each !== group.id) })
    }
    this.#changes.delete(identityPaths.group(group.id))
    this.changesGroups = true
  }
}

/** Whether a text can be an ID, which is part of a path. */
export function isId(id: string): boolean {
  return /^[\w-]{1,64}$/.test(id)
}
