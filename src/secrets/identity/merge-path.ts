/** `identity/entity/merge`: several entities that turned out to be one. */
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { boolean, text, textList } from '../../engines/framework/fields.ts'
import type { IdentityDraft } from './identity-draft.ts'
import type { IdentityParts } from './identity-parts.ts'
import type { Alias, Entity } from './identity-record.ts'

const MERGED_MAX = 100

export function mergePath(core: IdentityParts): Path {
  return path({
    pattern: 'entity/merge',
    summary: 'Make several entities a part of another one',
    fields: {
      from_entity_ids: textList('IDs of the entities that become a part of it'),
      to_entity_id: text('ID of the one that stays', { fallback: '' }),
      conflicting_alias_ids_to_keep: textList('Where both have an alias of a mount: the one that stays'),
      force: boolean('Where both have an alias of a mount: the one of the entity that stays is kept', {
        fallback: false,
      }),
    },
    async update({ conflicting_alias_ids_to_keep: kept = [], force, from_entity_ids: from = [], to_entity_id: to }) {
      if (to === '') throw new Rejection(400, 'missing entity id to merge to')
      if (from.length === 0) throw new Rejection(400, 'missing entity ids to merge from')
      if (from.length > MERGED_MAX) throw new Rejection(400, `at most ${MERGED_MAX} entities can be merged at a time`)
      if (from.includes(to)) throw new Rejection(400, 'to_entity_id should not be present in from_entity_ids')
      const { identity } = core.open
      const draft = identity.draft(core.now())
      let target = draft.entity(to)
      if (!target) throw new Rejection(400, 'entity id to merge to is invalid')
      const groups = new Set<string>()
      for (const id of new Set(from)) {
        const source = draft.entity(id)
        if (!source) throw new Rejection(400, 'entity id to merge from is invalid')
        // Its tokens would have rights again, and those of the other one besides.
        if (source.disabled && !target.disabled) {
          throw new Rejection(
            400,
            'a disabled entity cannot be merged into one that is not: enable it or remove it first',
          )
        }
        const memberOf = identity.memberOf(id)
        for (const groupId of memberOf) if (draft.group(groupId)?.memberEntityIds.includes(id)) groups.add(groupId)
        draft.deleteEntity(source, memberOf, target.id)
        target = merged(target, source, { kept: new Set(kept), force })
      }
      draft.putEntity(target)
      joinGroups(draft, target.id, groups)
      await identity.commit(draft)
      return undefined
    },
  })
}

function merged(target: Entity, source: Entity, how: { kept: ReadonlySet<string>; force: boolean }): Entity {
  const aliases = [...target.aliases]
  for (const alias of source.aliases) {
    const moved: Alias = { ...alias, mergedFrom: [...alias.mergedFrom, source.id] }
    const at = aliases.findIndex(({ mountAccessor }) => mountAccessor === alias.mountAccessor)
    const other = aliases[at]
    if (!other) aliases.push(moved)
    else if (how.kept.has(alias.id)) aliases[at] = moved
    else if (!how.kept.has(other.id) && !how.force) {
      throw new Rejection(
        400,
        `both entities have an alias of the mount ${alias.mountAccessor}: name one of ${other.id} and ${alias.id} in conflicting_alias_ids_to_keep`,
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
