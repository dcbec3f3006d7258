/** `identity/entity-alias`: aliases of entities, the names by which auth methods know them. */
import { type EngineCall, type Path, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { aliasField, inPath, type EngineInput, text, textMap } from '../../engines/framework/fields.ts'
import { runSliced } from '../../platform/sliced-work.ts'
import { allEntities } from './entity-paths.ts'
import type { IdentityDraft } from './identity-draft.ts'
import { validateMetadata, validateName } from './identity-limits.ts'
import { checkAccessor, type IdentityServices, aliasFields } from './identity-services.ts'
import type { Alias, Entity } from './identity-record.ts'

const FIELDS = {
  id: text('ID of an existing alias to update', { fallback: '' }),
  name: text('Name of the user or role in the auth method', { fallback: '' }),
  canonical_id: text('ID of the entity. Default: a new entity', { fallback: '' }),
  entity_id: aliasField(text('Deprecated: use canonical_id', { fallback: '' }), 'canonical_id'),
  mount_accessor: text('Accessor of the auth method', { fallback: '' }),
  custom_metadata: textMap('Custom metadata, available in policy templates'),
}

type AliasInput = EngineInput<typeof FIELDS>

export function aliasPaths(core: IdentityServices): Path[] {
  return [
    path({
      pattern: 'entity-alias',
      summary: 'Create or update an alias of an entity',
      fields: FIELDS,
      update: (input) => writeAlias(core, input),
    }),
    path({
      pattern: 'entity-alias/id',
      summary: 'List the IDs of all entity aliases',
      fields: {},
      list: (_input, call) => listAliases(core, call),
    }),
    path({
      pattern: 'entity-alias/id/:id',
      summary: 'Read, update or delete an entity alias',
      fields: { ...FIELDS, id: inPath('ID of the alias') },
      read({ id }) {
        const known = core.open.identity.alias(id)
        return known && { data: aliasFields(core, known.alias, known.entity.id) }
      },
      update: (input) => writeAlias(core, input),
      async delete({ id }) {
        const draft = core.open.identity.draft(core.now())
        const entity = draft.entityOfAliasId(id)
        if (entity) draft.putEntity({ ...entity, aliases: entity.aliases.filter((alias) => alias.id !== id) })
        await core.open.identity.commit(draft)
        return undefined
      },
    }),
  ]
}

interface OwnedAlias {
  readonly alias: Alias
  readonly entity: Entity
}

function findAlias(entity: Entity | undefined, matches: (alias: Alias) => boolean): OwnedAlias | undefined {
  const alias = entity?.aliases.find(matches)
  return entity && alias && { alias, entity }
}

async function writeAlias(core: IdentityServices, input: AliasInput): Promise<Reply> {
  const custom = validateMetadata(input.custom_metadata)
  const canonicalId = input.canonical_id === '' ? input.entity_id : input.canonical_id
  const draft = core.open.identity.draft(core.now())
  const known = knownAlias(draft, input)
  const name = validateName(input.name === '' ? (known?.alias.name ?? '') : input.name, 'alias')
  const mountAccessor = input.mount_accessor === '' ? (known?.alias.mountAccessor ?? '') : input.mount_accessor
  checkAccessor(core, mountAccessor)
  const owner = ownerOf(draft, canonicalId, known)
  const sameName = draft.entityOfAlias(mountAccessor, name)?.aliases.find(hasName(mountAccessor, name))
  if (sameName && sameName.id !== known?.alias.id) throw new Rejection(400, 'another alias of the mount has this name')
  const { alias: before = draft.newAlias({ name, mountAccessor, customMetadata: custom ? null : {} }) } = known ?? {}
  const alias: Alias = {
    ...before,
    name,
    mountAccessor,
    customMetadata: custom === undefined ? before.customMetadata : custom,
    updatedAtMs: core.now(),
  }
  const others = owner.aliases.filter(({ id }) => id !== alias.id)
  if (others.some((each) => each.mountAccessor === mountAccessor)) {
    throw new Rejection(400, 'the entity already has an alias of this mount')
  }
  if (known && known.entity.id !== owner.id) {
    draft.putEntity({ ...known.entity, aliases: known.entity.aliases.filter(({ id }) => id !== alias.id) })
  }
  draft.putEntity({ ...owner, aliases: [...others, alias] })
  await core.open.identity.commit(draft)
  return { data: { canonical_id: owner.id, id: alias.id } }
}

function hasName(mountAccessor: string, name: string): (alias: Alias) => boolean {
  return (alias) => alias.mountAccessor === mountAccessor && alias.name === name
}

function knownAlias(draft: IdentityDraft, { id, mount_accessor: accessor, name }: AliasInput): OwnedAlias | undefined {
  if (id === '') return findAlias(draft.entityOfAlias(accessor, name), hasName(accessor, name))
  const known = findAlias(draft.entityOfAliasId(id), (alias) => alias.id === id)
  if (!known) throw new Rejection(400, 'invalid alias id')
  return known
}

function ownerOf(draft: IdentityDraft, canonicalId: string, known: OwnedAlias | undefined): Entity {
  if (canonicalId === '') return known?.entity ?? draft.newEntity('')
  const entity = draft.entity(canonicalId)
  if (!entity) throw new Rejection(400, 'invalid canonical ID')
  return entity
}

async function listAliases(core: IdentityServices, call: EngineCall): Promise<Reply> {
  const entities = await runSliced(allEntities(core), call)
  const info: Record<string, unknown> = {}
  for (const entity of entities) {
    for (const alias of entity.aliases) {
      const fields = aliasFields(core, alias, entity.id)
      const names = ['canonical_id', 'custom_metadata', 'local', 'mount_accessor', 'mount_path', 'mount_type', 'name']
      info[alias.id] = Object.fromEntries(names.map((name) => [name, fields[name]]))
    }
  }
  const keys = Object.keys(info).sort()
  return { data: { keys, ...(keys.length > 0 && { key_info: info }) } }
}
