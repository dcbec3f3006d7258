/**
 * Identity: who a caller is, independent of the auth method. An *entity* is a person or a program; an *alias* is its name in an auth
 * method; a *group* contains entities and other groups. The policies of an entity and of all its groups are added to those of its token,
 * and templates of policies use its fields.
 *
 * Promises. A change of an entity, an alias or a group is one commit with all of its index entries. It applies to the next request of
 * every affected caller, with older tokens too. A disabled or deleted entity has no permissions from then on. Concurrent first logins
 * with the same alias get the same entity. No name is in a path of the store.
 *
 * Assumes that every change goes through this store, because permissions are cached until a change is durable. A restored snapshot
 * comes with a new core.
 *
 * Costs. A change of a group drops all cached permissions, and each is computed again when its entity sends a request. Nothing is read
 * when the core is unsealed, and the caches are bounded, so the number of entities does not matter.
 */
import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Caller } from '../../engines/framework/engine.ts'
import { type CommitPart, type Put, Storage } from '../../storage/barrier/storage.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import type { EntityFacts, GroupFacts } from '../policies/policy-template.ts'
import { aliasHash, groupAliasHash, IdentityDraft, isId, nameHash, type NameHasher } from './identity-draft.ts'
import {
  type Alias,
  type Entity,
  type IdentityGroup,
  IDENTITY_PREFIX,
  identityPaths,
  parseEntity,
  parseGroup,
} from './identity-record.ts'

const SALT_BYTES = 32
/** Cached permissions: a few kilobytes for each entity. */
const RIGHTS_MAX = 2000
const GROUPS_MAX = 500
const PAGE_IDS = 500

/** What an entity adds to its tokens. The object is replaced when anything changes. */
export interface EntityRights {
  /** ID of the entity that it was merged into, or its own. */
  readonly entityId: string
  readonly disabled: boolean
  readonly policies: readonly string[]
  readonly facts: EntityFacts
}

export interface EntityGroups {
  /** Internal groups with the entity as a member, and external groups that an auth method reports for it. */
  readonly direct: readonly IdentityGroup[]
  readonly inherited: readonly IdentityGroup[]
}

/** The parts of a commit that delete or move what other stores keep of deleted entities (`IdentityDraft.deletedEntities`). */
type DeletionParts = (deleted: ReadonlyMap<string, string | undefined>) => readonly CommitPart[]

export class IdentityStore {
  readonly #storage: Storage
  readonly #isMounted: (accessor: string) => boolean
  readonly #deletionParts: DeletionParts
  readonly #hash: KeyedHash
  /** A new salt, which is written with every commit until it is durable. */
  #saltPut: Put | undefined
  readonly #rights = new LRUCache<string, EntityRights>({ max: RIGHTS_MAX })
  readonly #groups = new LRUCache<string, IdentityGroup>({ max: GROUPS_MAX })

  /** `storage` is all of the barrier. `isMounted`: whether an auth method with an accessor is enabled. */
  constructor(storage: Storage, isMounted: (accessor: string) => boolean, deletionParts: DeletionParts = () => []) {
    this.#isMounted = isMounted
    this.#deletionParts = deletionParts
    this.#storage = storage.below(IDENTITY_PREFIX)
    const stored = this.#storage.pending(identityPaths.salt)
    const salt = stored ?? randomBytes(SALT_BYTES)
    if (!stored) this.#saltPut = { path: identityPaths.salt, value: salt }
    this.#hash = new KeyedHash(salt)
  }

  readonly #hashName: NameHasher = (text) => this.#hash.digest(text, 'base64url')

  /** Starts a change, which must be committed without an `await` in between. */
  draft(nowMs: number): IdentityDraft {
    return new IdentityDraft(this.#storage, this.#hashName, nowMs)
  }

  /** The part of a commit for a draft. `onSettled` must be called after the commit, successful or not. */
  part(draft: IdentityDraft): { readonly part: CommitPart; readonly onSettled: () => void } {
    const { batch } = draft
    const salt = this.#saltPut
    const puts = salt ? [...batch.puts, { path: salt.path, value: Buffer.from(salt.value) }] : batch.puts
    const onSettled = () => {
      if (this.#saltPut && this.#storage.get(identityPaths.salt)) this.#saltPut = undefined
      this.#dropCached(draft)
    }
    return { part: { storage: this.#storage, batch: { puts, deletes: batch.deletes } }, onSettled }
  }

  /** Resolves when the change is durable and applies to the next request. */
  async commit(draft: IdentityDraft): Promise<void> {
    const { onSettled, part } = this.part(draft)
    if (part.batch.puts.length + part.batch.deletes.length === 0) return
    try {
      await Storage.commitAll([
        part,
        ...(draft.deletedEntities.size > 0 ? this.#deletionParts(draft.deletedEntities) : []),
      ])
    } finally {
      onSettled()
    }
  }

  #dropCached({ changedEntities, changesGroups }: IdentityDraft): void {
    if (changesGroups) {
      this.#rights.clear()
      this.#groups.clear()
    }
    if (changedEntities.size === 0) return
    // Rights are cached under the IDs of merged entities, too.
    for (const [id, { entityId }] of this.#rights.entries()) if (changedEntities.has(entityId)) this.#rights.delete(id)
    for (const id of changedEntities) this.#rights.delete(id)
  }

  /** To be called when an auth method is disabled: the groups that it reported no longer count. */
  dropRights(): void {
    this.#rights.clear()
  }

  entity(id: string): Entity | undefined {
    const bytes = isId(id) ? this.#storage.get(identityPaths.entity(id)) : undefined
    return bytes && parseEntity(bytes)
  }

  #entityAt(path: string): Entity | undefined {
    const id = this.#storage.get(path)?.toString('latin1')
    return id === undefined ? undefined : this.entity(id)
  }

  /** The entity with an ID, or the one that it was merged into. */
  resolveEntity(id: string): Entity | undefined {
    return this.entity(id) ?? (isId(id) ? this.#entityAt(identityPaths.merged(id)) : undefined)
  }

  entityNamed(name: string): Entity | undefined {
    return this.#entityAt(identityPaths.entityName(nameHash(this.#hashName, name)))
  }

  entityOfAlias(mountAccessor: string, name: string): Entity | undefined {
    return this.#entityAt(identityPaths.alias(aliasHash(this.#hashName, mountAccessor, name)))
  }

  /** An alias by its ID, with its entity. */
  alias(id: string): { readonly alias: Alias; readonly entity: Entity } | undefined {
    const entity = isId(id) ? this.#entityAt(identityPaths.aliasId(id)) : undefined
    const alias = entity?.aliases.find((each) => each.id === id)
    return entity && alias && { alias, entity }
  }

  group(id: string): IdentityGroup | undefined {
    const known = this.#groups.get(id)
    if (known) return known
    const bytes = isId(id) ? this.#storage.get(identityPaths.group(id)) : undefined
    const group = bytes && parseGroup(bytes)
    if (group) this.#groups.set(id, group)
    return group
  }

  #groupAt(path: string): IdentityGroup | undefined {
    const id = this.#storage.get(path)?.toString('latin1')
    return id === undefined ? undefined : this.group(id)
  }

  groupNamed(name: string): IdentityGroup | undefined {
    return this.#groupAt(identityPaths.groupName(nameHash(this.#hashName, name)))
  }

  groupOfAlias(mountAccessor: string, name: string): IdentityGroup | undefined {
    return this.#groupAt(identityPaths.groupAlias(groupAliasHash(this.#hashName, mountAccessor, name)))
  }

  groupOfAliasId(id: string): IdentityGroup | undefined {
    return isId(id) ? this.#groupAt(identityPaths.groupAliasId(id)) : undefined
  }

  /** IDs of the internal groups with an entity as a direct member. */
  groupIdsOf(entityId: string): string[] {
    return this.#storage.list(identityPaths.memberships(entityId))
  }

  /** IDs of the member entities, at most `limit`. For an external group, those that its auth method reports. */
  membersOf({ alias, memberEntityIds, type }: IdentityGroup, limit: number): string[] {
    if (type === 'internal') return memberEntityIds.slice(0, limit)
    if (!alias || !this.#isMounted(alias.mountAccessor)) return []
    const reported = identityPaths.reported(groupAliasHash(this.#hashName, alias.mountAccessor, alias.name))
    return this.#storage.list(reported, { limit })
  }

  /** External groups that enabled auth methods report for an entity. */
  #reportedFor({ aliases }: Entity): IdentityGroup[] {
    const groups = aliases.flatMap((alias) =>
      this.#isMounted(alias.mountAccessor)
        ? alias.groups.flatMap((name) => this.#externalGroup(alias.mountAccessor, name) ?? [])
        : [],
    )
    return [...new Set(groups)]
  }

  /** Trusts the encrypted record of the group only: an attacker who writes to the database can forge index entries. */
  #externalGroup(mountAccessor: string, name: string): IdentityGroup | undefined {
    const group = this.groupOfAlias(mountAccessor, name)
    const hasAlias =
      group?.alias?.mountAccessor === mountAccessor && group.alias.name.toLowerCase() === name.toLowerCase()
    return hasAlias ? group : undefined
  }

  /** Groups of an entity: direct ones and their ancestors. */
  groupsOf(entity: Entity): EntityGroups {
    const internal = this.groupIdsOf(entity.id).flatMap((id) => {
      const group = this.group(id)
      // An attacker who writes to the database can forge index entries.
      return group?.memberEntityIds.includes(entity.id) ? [group] : []
    })
    const direct = [...internal, ...this.#reportedFor(entity)]
    const found = new Map(direct.map((group) => [group.id, group]))
    // Iteration includes the groups that are added meanwhile.
    for (const { parentGroupIds } of found.values()) {
      for (const id of parentGroupIds) {
        const parent = found.has(id) ? undefined : this.group(id)
        if (parent) found.set(id, parent)
      }
    }
    return { direct: [...found.values()].slice(0, direct.length), inherited: [...found.values()].slice(direct.length) }
  }

  /** Names of the policies of an entity, which may be uncommitted, and of all its groups. */
  policiesOf(entity: Entity): string[] {
    const { direct, inherited } = this.groupsOf(entity)
    const groups = [...direct, ...inherited]
    return [...new Set([...entity.policies, ...groups.flatMap((group) => group.policies)])].sort()
  }

  /** Undefined for an unknown entity. */
  rights(entityId: string): EntityRights | undefined {
    const known = this.#rights.get(entityId)
    if (known) return known
    const entity = this.resolveEntity(entityId)
    if (!entity) return undefined
    const { direct, inherited } = this.groupsOf(entity)
    // An alias of a disabled auth method must not fill a template.
    const aliases = entity.aliases.filter(({ mountAccessor }) => this.#isMounted(mountAccessor))
    const facts = factsOf({ ...entity, aliases }, [...direct, ...inherited])
    const rights = { entityId: entity.id, disabled: entity.disabled, policies: this.policiesOf(entity), facts }
    this.#rights.set(entityId, rights)
    return rights
  }

  /** IDs in a folder, read page by page. */
  *ids(folder: string): Generator<string> {
    let after = ''
    for (;;) {
      const page = this.#storage.list(folder, { after, limit: PAGE_IDS })
      yield* page
      after = page.at(-1) ?? ''
      if (after === '') return
    }
  }

  close(): void {
    this.#rights.clear()
    this.#groups.clear()
    this.#hash.close()
  }
}

function factsOf({ aliases, id, metadata, name }: Entity, groups: readonly IdentityGroup[]): EntityFacts {
  return {
    id,
    name,
    metadata: metadata ?? {},
    aliases: aliases.map((alias) => ({
      mountAccessor: alias.mountAccessor,
      id: alias.id,
      name: alias.name,
      metadata: alias.metadata ?? {},
      customMetadata: alias.customMetadata ?? {},
    })),
    groups: groups.map((group): GroupFacts => ({ id: group.id, name: group.name, metadata: group.metadata ?? {} })),
  }
}

type PolicyHolder = Pick<Caller, 'entityId' | 'policies'>

/** The policies of a token and its entity together. */
export class EntityPolicies {
  readonly #identity: IdentityStore
  /** The same list for the same rights and policies, because compiled policies are cached by the list. */
  readonly #unions = new WeakMap<EntityRights, WeakMap<readonly string[], readonly string[]>>()

  constructor(identity: IdentityStore) {
    this.#identity = identity
  }

  /** Undefined if the entity is disabled or was deleted: the token has no permissions. */
  of({ entityId, policies }: PolicyHolder): readonly string[] | undefined {
    if (entityId === '') return policies
    const rights = this.#identity.rights(entityId)
    if (!rights || rights.disabled) return undefined
    return rights.policies.length === 0 ? policies : this.#unionOf(rights, policies)
  }

  #unionOf(rights: EntityRights, policies: readonly string[]): readonly string[] {
    let unions = this.#unions.get(rights)
    if (!unions) this.#unions.set(rights, (unions = new WeakMap()))
    let union = unions.get(policies)
    if (!union) unions.set(policies, (union = [...new Set([...policies, ...rights.policies])]))
    return union
  }

  factsOf({ entityId }: PolicyHolder): EntityFacts | undefined {
    return entityId === '' ? undefined : this.#identity.rights(entityId)?.facts
  }
}
