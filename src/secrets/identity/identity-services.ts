/** The services of the core that the endpoints below `identity/` use, and the fields of entities, aliases and groups in answers. */
import { Rejection } from '../../engines/framework/engine.ts'
import type { MountTable } from '../mounts/mounts.ts'
import type { IdentityStore } from './identity.ts'
import { MEMBERS_MAX } from './identity-limits.ts'
import type { Alias, Entity, IdentityGroup } from './identity-record.ts'

export interface IdentityServices {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: { readonly identity: IdentityStore; readonly mounts: MountTable }
  /** Milliseconds since 1970, by the core's clock (`core-clock.ts`). */
  now(): number
}

export type IdentityFields = Record<string, unknown>

/** The only namespace. */
export const NAMESPACE_ID = 'root'

function timeText(ms: number): string {
  return new Date(ms).toISOString()
}

/** Path and type of the mount with an accessor; empty if it no longer exists. */
export function mountByAccessor(
  core: IdentityServices,
  accessor: string,
): { readonly path: string; readonly type: string } {
  const { path = '', type = '' } = core.open.mounts.byAccessor(accessor)?.record ?? {}
  return { path, type }
}

/** Throws a Rejection (400) if no auth method has the accessor. */
export function checkAccessor(core: IdentityServices, accessor: string): void {
  if (accessor === '') throw new Rejection(400, 'missing mount_accessor')
  if (!mountByAccessor(core, accessor).path.startsWith('auth/')) throw new Rejection(400, 'invalid mount accessor')
}

export function aliasFields(core: IdentityServices, alias: Alias, canonicalId: string): IdentityFields {
  const { path, type } = mountByAccessor(core, alias.mountAccessor)
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
    // Not in Vault: groups that the auth method reports.
    ...(alias.groups.length > 0 && { groups: alias.groups }),
  }
}

export function entityFields(core: IdentityServices, entity: Entity): IdentityFields {
  const { direct, inherited } = core.open.identity.groupsOf(entity)
  const [directIds, inheritedIds] = [direct, inherited].map((groups) => groups.map(({ id }) => id))
  return {
    aliases: entity.aliases.map((alias) => aliasFields(core, alias, entity.id)),
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
    namespace_id: NAMESPACE_ID,
    policies: entity.policies,
  }
}

export function groupFields(core: IdentityServices, group: IdentityGroup): IdentityFields {
  return {
    alias: group.alias ? aliasFields(core, group.alias, group.id) : {},
    creation_time: timeText(group.createdAtMs),
    id: group.id,
    last_update_time: timeText(group.updatedAtMs),
    member_entity_ids: core.open.identity.membersOf(group, MEMBERS_MAX),
    member_group_ids: group.memberGroupIds.length > 0 ? group.memberGroupIds : null,
    metadata: group.metadata,
    modify_index: group.modifyIndex,
    name: group.name,
    namespace_id: NAMESPACE_ID,
    parent_group_ids: group.parentGroupIds.length > 0 ? group.parentGroupIds : null,
    policies: group.policies.length > 0 ? group.policies : null,
    type: group.type,
  }
}
