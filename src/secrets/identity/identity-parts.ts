/** What the endpoints below `identity/` need of the core, and what they tell of entities, aliases and groups. */
import { Rejection } from '../../engines/framework/engine.ts'
import type { MountTable } from '../mounts/mounts.ts'
import type { IdentityStore } from './identity.ts'
import { MEMBERS_MAX } from './identity-limits.ts'
import type { Alias, Entity, Group } from './identity-record.ts'

export interface IdentityParts {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: { readonly identity: IdentityStore; readonly mounts: MountTable }
  /** Milliseconds since 1970, by the clock that lives are measured with. */
  now(): number
}

export type Told = Record<string, unknown>

/** Of no namespaces there is one. */
export const NAMESPACE = 'root'

function timeText(ms: number): string {
  return new Date(ms).toISOString()
}

/** Path and type of the mount that an alias is of; empty where that is gone. */
export function mountNamed(core: IdentityParts, accessor: string): { readonly path: string; readonly type: string } {
  const { path = '', type = '' } = core.open.mounts.byAccessor(accessor)?.record ?? {}
  return { path, type }
}

/** Throws a Rejection (400) for the accessor of no auth method. */
export function checkAccessor(core: IdentityParts, accessor: string): void {
  if (accessor === '') throw new Rejection(400, 'missing mount_accessor')
  if (!mountNamed(core, accessor).path.startsWith('auth/')) throw new Rejection(400, 'invalid mount accessor')
}

export function toldAlias(core: IdentityParts, alias: Alias, canonicalId: string): Told {
  const { path, type } = mountNamed(core, alias.mountAccessor)
  return {
    canonical_id: canonicalId,
    creation_time: timeText(alias.createdAtMs),
    custom_metadata: alias.customMetadata,
    id: alias.id,
    last_update_time: timeText(alias.updatedAtMs),
    local: false,
    merged_from_canonical_ids: alias.mergedFrom.length > 0 ? alias.mergedFrom : null,
    metadata: alias.metadata,
    mount_accessor: alias.mountAccessor,
    mount_path: path,
    mount_type: type,
    name: alias.name,
    // An addition: shown where the auth method reports any.
    ...(alias.groups.length > 0 && { groups: alias.groups }),
  }
}

export function toldEntity(core: IdentityParts, entity: Entity): Told {
  const { direct, inherited } = core.open.identity.groupsOf(entity)
  const [directIds, inheritedIds] = [direct, inherited].map((groups) => groups.map(({ id }) => id))
  return {
    aliases: entity.aliases.map((alias) => toldAlias(core, alias, entity.id)),
    creation_time: timeText(entity.createdAtMs),
    direct_group_ids: directIds,
    disabled: entity.disabled,
    group_ids: [...(directIds ?? []), ...(inheritedIds ?? [])],
    id: entity.id,
    inherited_group_ids: inheritedIds,
    last_update_time: timeText(entity.updatedAtMs),
    merged_entity_ids: entity.mergedIds.length > 0 ? entity.mergedIds : null,
    metadata: entity.metadata,
    name: entity.name,
    namespace_id: NAMESPACE,
    policies: entity.policies,
  }
}

export function toldGroup(core: IdentityParts, group: Group): Told {
  return {
    alias: group.alias ? toldAlias(core, group.alias, group.id) : {},
    creation_time: timeText(group.createdAtMs),
    id: group.id,
    last_update_time: timeText(group.updatedAtMs),
    member_entity_ids: core.open.identity.membersOf(group, MEMBERS_MAX),
    member_group_ids: group.memberGroupIds.length > 0 ? group.memberGroupIds : null,
    metadata: group.metadata,
    modify_index: group.modifyIndex,
    name: group.name,
    namespace_id: NAMESPACE,
    parent_group_ids: group.parentGroupIds.length > 0 ? group.parentGroupIds : null,
    policies: group.policies.length > 0 ? group.policies : null,
    type: group.type,
  }
}
