/** The engine of `identity/`, and its lookups. */
import { type Engine, type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { foldedField, text } from '../../engines/framework/fields.ts'
import { type MfaIdentityParts, mfaIdentityPaths } from '../mfa/identity-paths.ts'
import { aliasPaths } from './alias-paths.ts'
import { entityPaths } from './entity-paths.ts'
import { groupPaths } from './group-paths.ts'
import { type IdentityServices, entityFields, groupFields } from './identity-services.ts'
import { mergePath } from './merge-path.ts'
import { type OidcServices, oidcPaths } from './oidc-paths.ts'

export function identityEngine(core: IdentityServices & MfaIdentityParts & OidcServices): Engine {
  return {
    type: 'identity',
    description: 'identity store',
    isSingle: true,
    paths: [
      ...entityPaths(core),
      mergePath(core),
      ...aliasPaths(core),
      ...groupPaths(core),
      ...lookupPaths(core),
      ...mfaIdentityPaths(core),
      ...oidcPaths(core),
    ],
  }
}

const LOOKUP_FIELDS = {
  id: text('ID', { fallback: '' }),
  name: foldedField(text('Name', { fallback: '' }), 'case'),
  alias_id: text('ID of an alias', { fallback: '' }),
  alias_name: text('Name of an alias; requires alias_mount_accessor', { fallback: '' }),
  alias_mount_accessor: text('Accessor of the auth method of alias_name', { fallback: '' }),
}

interface LookupInput {
  readonly id: string
  readonly name: string
  readonly alias_id: string
  readonly alias_name: string
  readonly alias_mount_accessor: string
}

interface Finders<T> {
  id(id: string): T | undefined
  name(name: string): T | undefined
  aliasId(id: string): T | undefined
  alias(mountAccessor: string, name: string): T | undefined
}

function lookupPaths(core: IdentityServices): Path[] {
  return [
    path({
      pattern: 'lookup/entity',
      summary: 'Look up an entity by ID, name or alias',
      fields: LOOKUP_FIELDS,
      update(input) {
        const { identity } = core.open
        const entity = lookUp(input, {
          id: (id) => identity.resolveEntity(id),
          name: (name) => identity.entityNamed(name),
          aliasId: (id) => identity.alias(id)?.entity,
          alias: (accessor, name) => identity.entityOfAlias(accessor, name),
        })
        return entity && { data: entityFields(core, entity) }
      },
    }),
    path({
      pattern: 'lookup/group',
      summary: 'Look up a group by ID, name or alias',
      fields: { ...LOOKUP_FIELDS, alias_name: foldedField(LOOKUP_FIELDS.alias_name, 'case') },
      update(input) {
        const { identity } = core.open
        const group = lookUp(input, {
          id: (id) => identity.group(id),
          name: (name) => identity.groupNamed(name),
          aliasId: (id) => identity.groupOfAliasId(id),
          alias: (accessor, name) => identity.groupOfAlias(accessor, name),
        })
        return group && { data: groupFields(core, group) }
      },
    }),
  ]
}

/** Throws a Rejection (400) unless exactly one criterion is given. */
function lookUp<T>(input: LookupInput, find: Finders<T>): T | undefined {
  const { alias_id: aliasId, alias_mount_accessor: accessor, alias_name: alias, id, name } = input
  const criteria = [id, name, aliasId, alias].filter((given) => given !== '')
  if (criteria.length === 0) throw new Rejection(400, 'query parameter not supplied')
  if (criteria.length > 1)
    throw new Rejection(400, 'query parameters conflict; please supply distinct set of query parameters')
  if ((alias === '') !== (accessor === '')) {
    throw new Rejection(400, "both 'alias_name' and 'alias_mount_accessor' needs to be set")
  }
  if (id !== '') return find.id(id)
  if (name !== '') return find.name(name)
  return aliasId === '' ? find.alias(accessor, alias) : find.aliasId(aliasId)
}
