/** `identity/entity-alias`: what auth methods call an entity. */
import { type EngineCall, type Path, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { aliasField, inPath, type EngineInput, text, textMap } from '../../engines/framework/fields.ts'
import { runSliced } from '../../platform/sliced-work.ts'
import { everyEntity } from './entity-paths.ts'
import type { IdentityDraft } from './identity-draft.ts'
import { checkedMetadata, checkedName } from './identity-limits.ts'
import { checkAccessor, type IdentityParts, toldAlias } from './identity-parts.ts'
import type { Alias, Entity } from './identity-record.ts'

const FIELDS = {
  id: text('ID of the alias, to change one that is there', { fallback: '' }),
  name: text('What the auth method calls the entity', { fallback: '' }),
  canonical_id: text('ID of the entity; one is made unless given', { fallback: '' }),
  entity_id: aliasField(text('Old name of canonical_id', { fallback: '' }), 'canonical_id'),
  mount_accessor: text('Accessor of the auth method', { fallback: '' }),
  custom_metadata: textMap('Texts by name, for templates of policies and for people'),
}

type AliasInput = EngineInput<typeof FIELDS>

export function aliasPaths(core: IdentityParts): Path[] {
  return [
    path({
      pattern: 'entity-alias',
      summary: 'Make an alias of an entity, or change one',
      fields: FIELDS,
      update: (input) => write(core, input),
    }),
    path({
      pattern: 'entity-alias/id',
      summary: 'IDs of all aliases of entities',
      fields: {},
      list: (_input, call) => listed(core, call),
    }),
    path({
      pattern: 'entity-alias/id/:id',
      summary: 'An alias of an entity',
      fields: { ...FIELDS, id: inPath('ID of the alias') },
      read({ id }) {
        const known = core.open.identity.alias(id)
        return known && { data: toldAlias(core, known.alias, known.entity.id) }
      },
      update: (input) => write(core, input),
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

/** An alias that is there, with whose it is. */
interface Found {
  readonly alias: Alias
  readonly entity: Entity
}

function found(entity: Entity | undefined, isIt: (alias: Alias) => boolean): Found | undefined {
  const alias = entity?.aliases.find(isIt)
  return entity && alias && { alias, entity }
}

async function write(core: IdentityParts, input: AliasInput): Promise<Reply> {
  const custom = checkedMetadata(input.custom_metadata)
  const canonicalId = input.canonical_id === '' ? input.entity_id : input.canonical_id
  const draft = core.open.identity.draft(core.now())
  const known = knownAlias(draft, input)
  const name = checkedName(input.name === '' ? (known?.alias.name ?? '') : input.name, 'alias')
  const mountAccessor = input.mount_accessor === '' ? (known?.alias.mountAccessor ?? '') : input.mount_accessor
  checkAccessor(core, mountAccessor)
  const owner = ownerOf(draft, canonicalId, known)
  const holder = draft.entityOfAlias(mountAccessor, name)?.aliases.find(isCalled(mountAccessor, name))
  if (holder && holder.id !== known?.alias.id)
    throw new Rejection(400, 'the name is taken by another alias of the mount')
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
    throw new Rejection(400, 'the entity has an alias of that mount already')
  }
  if (known && known.entity.id !== owner.id) {
    draft.putEntity({ ...known.entity, aliases: known.entity.aliases.filter(({ id }) => id !== alias.id) })
  }
  draft.putEntity({ ...owner, aliases: [...others, alias] })
  await core.open.identity.commit(draft)
  return { data: { canonical_id: owner.id, id: alias.id } }
}

function isCalled(mountAccessor: string, name: string): (alias: Alias) => boolean {
  return (alias) => alias.mountAccessor === mountAccessor && alias.name === name
}

function knownAlias(draft: IdentityDraft, { id, mount_accessor: accessor, name }: AliasInput): Found | undefined {
  if (id === '') return found(draft.entityOfAlias(accessor, name), isCalled(accessor, name))
  const known = found(draft.entityOfAliasId(id), (alias) => alias.id === id)
  if (!known) throw new Rejection(400, 'invalid alias id')
  return known
}

function ownerOf(draft: IdentityDraft, canonicalId: string, known: Found | undefined): Entity {
  if (canonicalId === '') return known?.entity ?? draft.newEntity('')
  const entity = draft.entity(canonicalId)
  if (!entity) throw new Rejection(400, 'invalid canonical ID')
  return entity
}

async function listed(core: IdentityParts, call: EngineCall): Promise<Reply> {
  const entities = await runSliced(everyEntity(core), call)
  const info: Record<string, unknown> = {}
  for (const entity of entities) {
    for (const alias of entity.aliases) {
      const all = toldAlias(core, alias, entity.id)
      const names = ['canonical_id', 'custom_metadata', 'local', 'mount_accessor', 'mount_path', 'mount_type', 'name']
      info[alias.id] = Object.fromEntries(names.map((name) => [name, all[name]]))
    }
  }
  const keys = Object.keys(info).sort()
  return { data: { keys, ...(keys.length > 0 && { key_info: info }) } }
}
