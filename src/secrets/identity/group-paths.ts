/**
 * `identity/group` and `identity/group-alias`. An internal group names its members. The members of an external one are the
 * entities for which the auth method of its alias reported the alias's name with their last login or renewal.
 */
import { type EngineCall, type Path, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { foldedField, inPath, type EngineInput, text, textList, textMap } from '../../engines/framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
import { checkedMembers, checkedMetadata, checkedName, checkedPolicies, MEMBERS_MAX } from './identity-limits.ts'
import { checkAccessor, type IdentityParts, toldAlias, toldGroup } from './identity-parts.ts'
import { type Group, identityPaths } from './identity-record.ts'
import type { IdentityDraft } from './identity-draft.ts'

const FIELDS = {
  id: text('Its ID, to change one that is there', { fallback: '' }),
  name: foldedField(text('Name of the group; made by the server unless given', { fallback: '' }), 'case'),
  type: text('`internal`, or `external`: its members come from an auth method', { fallback: '' }),
  metadata: textMap('Texts by name, for templates of policies and for people'),
  policies: foldedField(textList('Policies that unite with those of its members'), 'case and spaces'),
  member_entity_ids: textList('IDs of the entities in it'),
  member_group_ids: textList('IDs of the groups in it'),
}

const ALIAS = {
  id: text('ID of the alias, to change one that is there', { fallback: '' }),
  name: foldedField(text('What the auth method calls the group', { fallback: '' }), 'case'),
  mount_accessor: text('Accessor of the auth method', { fallback: '' }),
  canonical_id: text('ID of the external group; one is made unless given', { fallback: '' }),
}

type GroupInput = EngineInput<typeof FIELDS>
type AliasInput = EngineInput<typeof ALIAS>

export function groupPaths(core: IdentityParts): Path[] {
  const told = (group: Group | undefined): Reply | undefined => group && { data: toldGroup(core, group) }
  return [
    path({
      pattern: 'group',
      summary: 'Make a group, or change the one of that ID or name',
      fields: FIELDS,
      update: (input) => write(core, input),
    }),
    path({
      pattern: 'group/id',
      summary: 'IDs of all groups',
      fields: {},
      list: (_input, call) => listed(core, call, 'id'),
    }),
    path({
      pattern: 'group/name',
      summary: 'Names of all groups',
      fields: {},
      list: (_input, call) => listed(core, call, 'name'),
    }),
    path({
      pattern: 'group/id/:id',
      summary: 'A group by its ID',
      fields: { ...FIELDS, id: inPath('ID of the group') },
      read: ({ id }) => told(core.open.identity.group(id)),
      update: (input) => write(core, input),
      delete: ({ id }) => remove(core, (draft) => draft.group(id)),
    }),
    path({
      pattern: 'group/name/:name',
      summary: 'A group by its name',
      fields: { ...FIELDS, name: inPath('Name of the group', { fold: 'case' }) },
      read: ({ name }) => told(core.open.identity.groupNamed(name)),
      update: (input) => write(core, { ...input, id: '' }, { renames: false }),
      delete: ({ name }) => remove(core, (draft) => draft.groupNamed(name)),
    }),
    ...groupAliasPaths(core),
  ]
}

function groupAliasPaths(core: IdentityParts): Path[] {
  return [
    path({
      pattern: 'group-alias',
      summary: 'Make the alias of an external group, or change one',
      fields: ALIAS,
      update: (input) => writeAlias(core, input),
    }),
    path({
      pattern: 'group-alias/id',
      summary: 'IDs of all aliases of groups',
      fields: {},
      list: (_input, call) => listedAliases(core, call),
    }),
    path({
      pattern: 'group-alias/id/:id',
      summary: 'The alias of an external group',
      fields: { ...ALIAS, id: inPath('ID of the alias') },
      read({ id }) {
        const group = core.open.identity.groupOfAliasId(id)
        return group?.alias ? { data: toldAlias(core, group.alias, group.id) } : undefined
      },
      update: (input) => writeAlias(core, input),
      async delete({ id }) {
        const draft = core.open.identity.draft(core.now())
        const group = draft.groupOfAliasId(id)
        if (group) draft.putGroup({ ...group, alias: null })
        await core.open.identity.commit(draft)
        return undefined
      },
    }),
  ]
}

/** A path names the group in lower case: the name that it was given in a body stays. */
async function write(core: IdentityParts, input: GroupInput, { renames = true } = {}): Promise<Reply> {
  const name = input.name === '' ? '' : checkedName(input.name, 'group')
  const [metadata, policies] = [checkedMetadata(input.metadata), checkedPolicies(input.policies)]
  const members = checkedMembers(input.member_entity_ids, 'entities')
  const subgroups = checkedMembers(input.member_group_ids, 'groups')
  const draft = core.open.identity.draft(core.now())
  const known = input.id === '' ? (name === '' ? undefined : draft.groupNamed(name)) : draft.group(input.id)
  if (input.id !== '' && !known) throw new Rejection(400, 'invalid group ID')
  const type = typeOf(input.type, known)
  if (type === 'external' && members)
    throw new Rejection(400, "member entities can't be set manually for external groups")
  if (type === 'external' && subgroups) throw new Rejection(400, "member groups can't be set for external groups")
  const before = known ?? draft.newGroup(name, type)
  const group: Group = {
    ...before,
    name: name === '' || (known && !renames) ? before.name : name,
    metadata: metadata === undefined ? before.metadata : metadata,
    policies: policies ?? before.policies,
    memberEntityIds: members ?? before.memberEntityIds,
    memberGroupIds: subgroups ?? before.memberGroupIds,
  }
  draft.putGroup(group)
  await core.open.identity.commit(draft)
  return { data: { id: group.id, name: group.name } }
}

function typeOf(given: string, known: Group | undefined): Group['type'] {
  const type = given === '' ? (known?.type ?? 'internal') : given
  if (type !== 'internal' && type !== 'external')
    throw new Rejection(400, `group type ${JSON.stringify(given.slice(0, 64))} is neither internal nor external`)
  if (known && known.type !== type) throw new Rejection(400, 'group type cannot be changed')
  return type
}

async function remove(core: IdentityParts, find: (draft: IdentityDraft) => Group | undefined): Promise<undefined> {
  const draft = core.open.identity.draft(core.now())
  const group = find(draft)
  if (group) draft.deleteGroup(group)
  await core.open.identity.commit(draft)
  return undefined
}

async function writeAlias(core: IdentityParts, input: AliasInput): Promise<Reply | undefined> {
  const draft = core.open.identity.draft(core.now())
  const known = input.id === '' ? undefined : draft.groupOfAliasId(input.id)
  if (input.id !== '' && !known) throw new Rejection(400, 'invalid group alias ID')
  const name = checkedName(input.name === '' ? (known?.alias?.name ?? '') : input.name, 'alias')
  const mountAccessor = input.mount_accessor === '' ? (known?.alias?.mountAccessor ?? '') : input.mount_accessor
  checkAccessor(core, mountAccessor)
  const group = aliasedGroup(draft, input.canonical_id, known)
  const holder = draft.groupOfAlias(mountAccessor, name)
  if (holder && holder.id !== group.id && holder.id !== known?.id) {
    throw new Rejection(400, 'combination of mount and group alias name is already in use')
  }
  if (isCalled(group.alias, mountAccessor, name) && (!known || known.id === group.id)) return undefined
  if (known && known.id !== group.id) draft.putGroup({ ...known, alias: null })
  const alias = { ...(known?.alias ?? group.alias ?? draft.newAlias({ name, mountAccessor })), name, mountAccessor }
  draft.putGroup({ ...group, alias: { ...alias, updatedAtMs: core.now() } })
  await core.open.identity.commit(draft)
  return { data: { canonical_id: group.id, id: alias.id } }
}

/** The group that an alias is to be of: the one that has it, or a new one, unless another is named. */
function aliasedGroup(draft: IdentityDraft, canonicalId: string, known: Group | undefined): Group {
  if (canonicalId === '') return known ?? draft.newGroup('', 'external')
  const group = draft.group(canonicalId)
  if (!group) throw new Rejection(400, "invalid group ID given in 'canonical_id'")
  if (group.type !== 'external') throw new Rejection(400, "alias can't be set on an internal group")
  return group
}

function isCalled(alias: Group['alias'], mountAccessor: string, name: string): boolean {
  return alias?.mountAccessor === mountAccessor && alias.name === name
}

function* everyGroup(core: IdentityParts, most = Number.POSITIVE_INFINITY): SlicedWork<Group[]> {
  const groups: Group[] = []
  for (const id of core.open.identity.ids(identityPaths.groups)) {
    if (groups.length >= most) break
    const group = core.open.identity.group(id)
    if (group) groups.push(group)
    yield RECORD_COST
  }
  return groups
}

async function listed(core: IdentityParts, call: EngineCall, by: 'id' | 'name'): Promise<Reply> {
  const groups = await runSliced(everyGroup(core, call.limitMax), call)
  if (by === 'name') return { data: { keys: groups.map(({ name }) => name).sort() } }
  const info = groups.map((group) => {
    const { id, name, parentGroupIds, policies } = group
    const members = core.open.identity.membersOf(group, MEMBERS_MAX)
    const counts = { num_member_entities: members.length, num_parent_groups: parentGroupIds.length }
    return [id, { name, policies, ...counts }]
  })
  return {
    data: { keys: groups.map(({ id }) => id), ...(groups.length > 0 && { key_info: Object.fromEntries(info) }) },
  }
}

async function listedAliases(core: IdentityParts, call: EngineCall): Promise<Reply> {
  const groups = await runSliced(everyGroup(core), call)
  const info: Record<string, unknown> = {}
  for (const { alias, id } of groups) {
    if (!alias) continue
    const all = toldAlias(core, alias, id)
    const names = ['canonical_id', 'mount_accessor', 'mount_path', 'mount_type', 'name']
    info[alias.id] = Object.fromEntries(names.map((name) => [name, all[name]]))
  }
  const keys = Object.keys(info).sort()
  return { data: { keys, ...(keys.length > 0 && { key_info: info }) } }
}
