/** `identity/entity`: who callers are. */
import { type EngineCall, type Path, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import {
  boolean,
  foldedField,
  inPath,
  type EngineInput,
  text,
  textList,
  textMap,
} from '../../engines/framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
import type { IdentityDraft } from './identity-draft.ts'
import { checkedMetadata, checkedName, checkedPolicies } from './identity-limits.ts'
import { type IdentityParts, mountNamed, type Told, toldEntity } from './identity-parts.ts'
import { type Entity, identityPaths } from './identity-record.ts'

/** Removed by one request. */
const REMOVED_MAX = 1000

const FIELDS = {
  name: foldedField(text('Name of the entity; made by the server unless given', { fallback: '' }), 'case'),
  id: text('Its ID, to change one that is there', { fallback: '' }),
  metadata: textMap('Texts by name, for templates of policies and for people'),
  policies: foldedField(textList('Policies that unite with those of its tokens'), 'case and spaces'),
  disabled: boolean('A disabled entity has no rights, with any token'),
}

type EntityInput = EngineInput<typeof FIELDS>

const ID = { ...FIELDS, id: inPath('ID of the entity') }
const NAME = { ...FIELDS, name: inPath('Name of the entity', { fold: 'case' }) }

export function entityPaths(core: IdentityParts): Path[] {
  return [
    path({
      pattern: 'entity',
      summary: 'Make an entity, or change the one of that ID or name',
      fields: FIELDS,
      update: (input) => write(core, input),
    }),
    path({
      pattern: 'entity/id',
      summary: 'IDs of all entities',
      fields: {},
      list: (_input, call) => listed(core, call, 'id'),
    }),
    path({
      pattern: 'entity/name',
      summary: 'Names of all entities',
      fields: {},
      list: (_input, call) => listed(core, call, 'name'),
    }),
    path({
      pattern: 'entity/id/:id',
      summary: 'An entity by its ID',
      fields: ID,
      read: ({ id }) => told(core, core.open.identity.current(id)),
      update: (input) => write(core, input),
      delete: ({ id }) => remove(core, (draft) => [draft.entity(id)]),
    }),
    path({
      pattern: 'entity/name/:name',
      summary: 'An entity by its name',
      fields: NAME,
      read: ({ name }) => told(core, core.open.identity.entityNamed(name)),
      update: (input) => write(core, { ...input, id: '' }, { renames: false }),
      delete: ({ name }) => remove(core, (draft) => [draft.entityNamed(name)]),
    }),
    path({
      pattern: 'entity/batch-delete',
      summary: 'Remove several entities',
      fields: { entity_ids: textList('Their IDs') },
      update({ entity_ids: ids = [] }) {
        if (ids.length === 0) throw new Rejection(400, 'missing entity ids to delete')
        if (ids.length > REMOVED_MAX) throw new Rejection(400, `at most ${REMOVED_MAX} entities at a time`)
        return remove(core, (draft) => ids.map((id) => draft.entity(id)))
      },
    }),
  ]
}

function told(core: IdentityParts, entity: Entity | undefined): Reply | undefined {
  return entity && { data: toldEntity(core, entity) }
}

/** A path names the entity in lower case: the name that it was given in a body stays. */
async function write(core: IdentityParts, input: EntityInput, { renames = true } = {}): Promise<Reply | undefined> {
  const name = input.name === '' ? '' : checkedName(input.name, 'entity')
  const [metadata, policies] = [checkedMetadata(input.metadata), checkedPolicies(input.policies)]
  const draft = core.open.identity.draft(core.now())
  const known = input.id === '' ? (name === '' ? undefined : draft.entityNamed(name)) : draft.entity(input.id)
  if (input.id !== '' && !known) throw new Rejection(400, 'entity not found from id')
  const before = known ?? draft.newEntity(name)
  const entity: Entity = {
    ...before,
    name: name === '' || (known && !renames) ? before.name : name,
    metadata: metadata === undefined ? before.metadata : metadata,
    policies: policies ?? before.policies,
    disabled: input.disabled ?? before.disabled,
  }
  draft.putEntity(entity)
  await core.open.identity.commit(draft)
  return known ? undefined : { data: { aliases: null, id: entity.id, name: entity.name } }
}

async function remove(core: IdentityParts, find: (draft: IdentityDraft) => (Entity | undefined)[]): Promise<undefined> {
  const { identity } = core.open
  const draft = identity.draft(core.now())
  for (const entity of find(draft)) if (entity) draft.deleteEntity(entity, identity.memberOf(entity.id))
  await identity.commit(draft)
  return undefined
}

async function listed(core: IdentityParts, call: EngineCall, by: 'id' | 'name'): Promise<Reply> {
  const entities = await runSliced(everyEntity(core, call.limitMax), call)
  if (by === 'name') return { data: { keys: entities.map(({ name }) => name).sort() } }
  const info = Object.fromEntries(entities.map((entity) => [entity.id, infoOf(core, entity)]))
  return { data: { keys: entities.map(({ id }) => id), ...(entities.length > 0 && { key_info: info }) } }
}

function infoOf(core: IdentityParts, { aliases, name }: Entity): Told {
  if (aliases.length === 0) return { name }
  const shown = aliases.map((alias) => {
    const { path: mountPath, type } = mountNamed(core, alias.mountAccessor)
    const { id, mountAccessor } = alias
    return { id, mount_accessor: mountAccessor, mount_path: mountPath, mount_type: type, name: alias.name }
  })
  return { aliases: shown, name }
}

export function* everyEntity(core: IdentityParts, most = Number.POSITIVE_INFINITY): SlicedWork<Entity[]> {
  const entities: Entity[] = []
  for (const id of core.open.identity.ids(identityPaths.entities)) {
    if (entities.length >= most) break
    const entity = core.open.identity.entity(id)
    if (entity) entities.push(entity)
    yield RECORD_COST
  }
  return entities
}
