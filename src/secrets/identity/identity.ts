/**
 * Identity: who a caller is, whatever it logs in with. An *entity* is a person or a program; an *alias* is what an auth
 * method calls it; a *group* holds entities and other groups. The policies of an entity and of all groups above it unite with
 * those of its token, and templates of policies are filled in from it.
 *
 * Promises. A change of an entity, an alias or a group is one commit with all of its indexes; it holds for the next request of
 * every caller that it concerns, also where its token is older. An entity that is disabled or was removed has no rights, at
 * once. Two who log in with the same alias for the first time get the same entity. No name shows in a path of the store.
 *
 * Assumes that every change goes through here, as rights are kept in memory until one is durable; entries that change
 * below (a snapshot that is restored) come with a new core.
 *
 * What can go wrong. A group is changed: rights of everybody are read again, each when its owner asks next. The number of
 * entities is no matter at a start: nothing is read before it is asked for, and what is kept of it is bounded.
 */
import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { type CommitPart, type Put, Storage } from '../../storage/barrier/storage.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import type { EntityFacts, GroupFacts } from '../policies/policy-template.ts'
import { aliasHash, groupAliasHash, type Hash, IdentityDraft, isId, nameHash } from './identity-draft.ts'
import {
  type Alias,
  type Entity,
  type Group,
  IDENTITY_PREFIX,
  identityPaths,
  parseEntity,
  parseGroup,
} from './identity-record.ts'

const SALT_BYTES = 32
/** Entities whose rights are kept at hand: some kilobytes each. */
const RIGHTS_MAX = 2000
const GROUPS_MAX = 500
const PAGE = 500

/** What an entity adds to its tokens. The object is replaced when anything of it changes. */
export interface Rights {
  /** That of the entity into which it was merged, where it was. */
  readonly entityId: string
  readonly disabled: boolean
  readonly policies: readonly string[]
  readonly facts: EntityFacts
}

export interface Groups {
  /** Internal groups that name it as a member, and external ones that an auth method reports for it. */
  readonly direct: readonly Group[]
  readonly inherited: readonly Group[]
}

/** Entities that are removed, with the ID of that into which each is merged. */
type PartsOfRemoval = (removed: ReadonlyMap<string, string | undefined>) => readonly CommitPart[]

export class IdentityStore {
  readonly #storage: Storage
  readonly #isMounted: (accessor: string) => boolean
  readonly #partsOfRemoval: PartsOfRemoval
  readonly #hash: KeyedHash
  #saltPut: Put | undefined
  readonly #rights = new LRUCache<string, Rights>({ max: RIGHTS_MAX })
  readonly #groups = new LRUCache<string, Group>({ max: GROUPS_MAX })

  /**
   * `storage` is all of the barrier. `isMounted`: whether an accessor is that of an auth method which is enabled. `partsOfRemoval`:
   * what others keep of entities, and is to be removed with them, or moved where one is merged into another.
   */
  constructor(storage: Storage, isMounted: (accessor: string) => boolean, partsOfRemoval: PartsOfRemoval = () => []) {
    this.#isMounted = isMounted
    this.#partsOfRemoval = partsOfRemoval
    this.#storage = storage.below(IDENTITY_PREFIX)
    const kept = this.#storage.pending(identityPaths.salt)
    const salt = kept ?? randomBytes(SALT_BYTES)
    if (!kept) this.#saltPut = { path: identityPaths.salt, value: salt }
    this.#hash = new KeyedHash(salt)
  }

  readonly #named: Hash = (text) => this.#hash.digest(text, 'base64url')

  /** A change that is to be put together and committed without an `await` in between. */
  draft(nowMs: number): IdentityDraft {
    return new IdentityDraft(this.#storage, this.#named, nowMs)
  }

  /** What is to be committed for a draft; `landed` must be called when that is over. */
  part(draft: IdentityDraft): { readonly part: CommitPart; readonly landed: () => void } {
    const { batch } = draft
    const salt = this.#saltPut
    const puts = salt ? [...batch.puts, { path: salt.path, value: Buffer.from(salt.value) }] : batch.puts
    const landed = () => {
      if (this.#saltPut && this.#storage.get(identityPaths.salt)) this.#saltPut = undefined
      this.#forget(draft)
    }
    return { part: { storage: this.#storage, batch: { puts, deletes: batch.deletes } }, landed }
  }

  /** Resolves when it is durable, and holds for the next request. */
  async commit(draft: IdentityDraft): Promise<void> {
    const { landed, part } = this.part(draft)
    if (part.batch.puts.length + part.batch.deletes.length === 0) return
    try {
      await Storage.commitAll([part, ...(draft.removed.size > 0 ? this.#partsOfRemoval(draft.removed) : [])])
    } finally {
      landed()
    }
  }

  #forget({ isWide, touched }: IdentityDraft): void {
    if (isWide) {
      this.#rights.clear()
      this.#groups.clear()
    }
    if (touched.size === 0) return
    // Also by the IDs of what was merged into it.
    for (const [id, { entityId }] of this.#rights.entries()) if (touched.has(entityId)) this.#rights.delete(id)
    for (const id of touched) this.#rights.delete(id)
  }

  /** To be called when an auth method was disabled: what it reported of groups holds no longer. */
  forgetRights(): void {
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

  /** By its ID, or by that of one that was merged into it. */
  current(id: string): Entity | undefined {
    return this.entity(id) ?? (isId(id) ? this.#entityAt(identityPaths.merged(id)) : undefined)
  }

  entityNamed(name: string): Entity | undefined {
    return this.#entityAt(identityPaths.entityName(nameHash(this.#named, name)))
  }

  entityOfAlias(mountAccessor: string, name: string): Entity | undefined {
    return this.#entityAt(identityPaths.alias(aliasHash(this.#named, mountAccessor, name)))
  }

  /** An alias by its ID, with whose it is. */
  alias(id: string): { readonly alias: Alias; readonly entity: Entity } | undefined {
    const entity = isId(id) ? this.#entityAt(identityPaths.aliasId(id)) : undefined
    const alias = entity?.aliases.find((each) => each.id === id)
    return entity && alias && { alias, entity }
  }

  group(id: string): Group | undefined {
    const known = this.#groups.get(id)
    if (known) return known
    const bytes = isId(id) ? this.#storage.get(identityPaths.group(id)) : undefined
    const group = bytes && parseGroup(bytes)
    if (group) this.#groups.set(id, group)
    return group
  }

  #groupAt(path: string): Group | undefined {
    const id = this.#storage.get(path)?.toString('latin1')
    return id === undefined ? undefined : this.group(id)
  }

  groupNamed(name: string): Group | undefined {
    return this.#groupAt(identityPaths.groupName(nameHash(this.#named, name)))
  }

  groupOfAlias(mountAccessor: string, name: string): Group | undefined {
    return this.#groupAt(identityPaths.groupAlias(groupAliasHash(this.#named, mountAccessor, name)))
  }

  groupOfAliasId(id: string): Group | undefined {
    return isId(id) ? this.#groupAt(identityPaths.groupAliasId(id)) : undefined
  }

  /** IDs of the internal groups that an entity is a member of itself. */
  memberOf(entityId: string): string[] {
    return this.#storage.list(identityPaths.memberships(entityId))
  }

  /** IDs of the entities in a group, at most `limit`: of an external group, those that its auth method reports. */
  membersOf({ alias, memberEntityIds, type }: Group, limit: number): string[] {
    if (type === 'internal') return memberEntityIds.slice(0, limit)
    if (!alias || !this.#isMounted(alias.mountAccessor)) return []
    const reported = identityPaths.reported(groupAliasHash(this.#named, alias.mountAccessor, alias.name))
    return this.#storage.list(reported, { limit })
  }

  /** External groups that auth methods report for an entity. A method that was disabled reports none. */
  #reportedFor({ aliases }: Entity): Group[] {
    const groups = aliases.flatMap((alias) =>
      this.#isMounted(alias.mountAccessor)
        ? alias.groups.flatMap((name) => this.#externalGroup(alias.mountAccessor, name) ?? [])
        : [],
    )
    return [...new Set(groups)]
  }

  /** As for members, the index is no evidence: what the group says of its alias is. */
  #externalGroup(mountAccessor: string, name: string): Group | undefined {
    const group = this.groupOfAlias(mountAccessor, name)
    const isIts = group?.alias?.mountAccessor === mountAccessor && group.alias.name.toLowerCase() === name.toLowerCase()
    return isIts ? group : undefined
  }

  /** Groups that an entity is in: itself, and by groups that it is in. */
  groupsOf(entity: Entity): Groups {
    const internal = this.memberOf(entity.id).flatMap((id) => {
      const group = this.group(id)
      // The name of an entry is no evidence: what the group says is.
      return group?.memberEntityIds.includes(entity.id) ? [group] : []
    })
    const direct = [...internal, ...this.#reportedFor(entity)]
    const found = new Map(direct.map((group) => [group.id, group]))
    // What is found on the way is walked, too.
    for (const { parentGroupIds } of found.values()) {
      for (const id of parentGroupIds) {
        const parent = found.has(id) ? undefined : this.group(id)
        if (parent) found.set(id, parent)
      }
    }
    return { direct: [...found.values()].slice(0, direct.length), inherited: [...found.values()].slice(direct.length) }
  }

  /** Names of the policies of an entity, which may be about to be committed, and of all groups above it. */
  policiesOf(entity: Entity): string[] {
    const { direct, inherited } = this.groupsOf(entity)
    const groups = [...direct, ...inherited]
    return [...new Set([...entity.policies, ...groups.flatMap((group) => group.policies)])].sort()
  }

  /** Undefined for an entity that is not there. */
  rights(entityId: string): Rights | undefined {
    const known = this.#rights.get(entityId)
    if (known) return known
    const entity = this.current(entityId)
    if (!entity) return undefined
    const { direct, inherited } = this.groupsOf(entity)
    // An alias of a disabled auth method identifies no one: it fills in no template.
    const aliases = entity.aliases.filter(({ mountAccessor }) => this.#isMounted(mountAccessor))
    const facts = factsOf({ ...entity, aliases }, [...direct, ...inherited])
    const rights = { entityId: entity.id, disabled: entity.disabled, policies: this.policiesOf(entity), facts }
    this.#rights.set(entityId, rights)
    return rights
  }

  /** IDs below a folder, page by page. */
  *ids(folder: string): Generator<string> {
    let after = ''
    for (;;) {
      const page = this.#storage.list(folder, { after, limit: PAGE })
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

function factsOf({ aliases, id, metadata, name }: Entity, groups: readonly Group[]): EntityFacts {
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
