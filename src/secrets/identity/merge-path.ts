/** `identity/entity/merge`: merges several entities of one person or program. */
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { boolean, text, textList } from '../../engines/framework/fields.ts'
import type { IdentityDraft } from './identity-draft.ts'
import type { IdentityServices } from './identity-services.ts'
import type { Alias, Entity } from './identity-record.ts'

const MERGED_MAX = 100

export function mergePath(core: IdentityServices): Path {
  return path({
    pattern: 'entity/merge',
    summary: 'Merge entities into another one',
    fields: {
      from_entity_ids: textList('IDs of the entities to merge, which are deleted'),
      to_entity_id: text('ID of the entity to merge into', { fallback: '' }),
      conflicting_alias_ids_to_keep: textList('IDs of the aliases to keep if both entities have an alias of a mount'),
      force: boolean('If both entities have an alias of a mount, keep that of to_entity_id', {
        fallback: false,
      }),
    },
    async update({ conflicting_alias_ids_to_keep: kept = [], force, from_entity_ids: from = [], to_entity_id: to }) {
      if (to === '') throw new Rejection(400, 'missing entity id to merge to')
      if (from.length === 0) throw new Rejection(400, 'missing entity ids to merge from')
      if (from.length > MERGED_MAX)
        throw new Rejection(400, `at most ${MERGED_MAX} entities can be merged in one request`)
      if (from.includes(to)) throw new Rejection(400, 'to_entity_id should not be present in from_entity_ids')
      const { identity } = core.open
      const draft = identity.draft(core.now())
      let target = draft.entity(to)
      if (!target) throw new Rejection(400, 'entity id to merge to is invalid')
      const groups = new Set<string>()
      for (const id of new Set(from)) {
        const source = draft.entity(id)
        if (!source) throw new Rejection(400, 'entity id to merge from is invalid')
        // The tokens of the disabled entity would get permissions again, those of the target.
        if (source.disabled && !target.disabled) {
          throw new Rejection(400, 'a disabled entity cannot be merged into an enabled one: enable or delete it first')
        }
        const groupIds = identity.groupIdsOf(id)
        for (const groupId of groupIds) if (draft.group(groupId)?.memberEntityIds.includes(id)) groups.add(groupId)
        draft.deleteEntity(source, groupIds, target.id)
        target = mergeInto(target, source, { kept: new Set(kept), force })
      }
      draft.putEntity(target)
      joinGroups(draft, target.id, groups)
      await identity.commit(draft)
      return undefined
    },
  })
}

function mergeInto(target: Entity, source: Entity, options: { kept: ReadonlySet<string>; force: boolean }): Entity {
  const aliases = [...target.aliases]
  for (const alias of source.aliases) {
    const moved: Alias = { ...alias, mergedFrom: [...alias.mergedFrom, source.id] }
    const at = aliases.findIndex(({ mountAccessor }) => mountAccessor === alias.mountAccessor)
    const other = aliases[at]
    if (!other) aliases.push(moved)
    else if (options.kept.has(alias.id)) aliases[at] = moved
    else if (!options.kept.has(other.id) && !options.force) {
      throw new Rejection(
        400,
        `both entities have an alias of the mount ${alias.mountAccessor}: list ${other.id} or ${alias.id} in conflicting_alias_ids_to_keep`,
      )
    }
  }
  return {
    ...target,
    aliases,
    policies: [...new Set([...target.policies, ...source.policies])].sort(),
    mergedIds: [...new Set([...target.mergedIds, ...source.mergedIds, source.id])],
  }
}

function joinGroups(draft: IdentityDraft, entityId: string, groupIds: ReadonlySet<string>): void {
  for (const id of groupIds) {
    const group = draft.group(id)
    if (!group || group.memberEntityIds.includes(entityId)) continue
    draft.putGroup({ ...group, memberEntityIds: [...group.memberEntityIds, entityId] })
  }
}
