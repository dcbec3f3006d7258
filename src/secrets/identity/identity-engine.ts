/** The engine behind `identity/`. */
import { type Engine, type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { foldedField, text } from '../../engines/framework/fields.ts'
import { type MfaIdentityParts, mfaIdentityPaths } from '../mfa/identity-paths.ts'
import { aliasPaths } from './alias-paths.ts'
import { entityPaths } from './entity-paths.ts'
import { groupPaths } from './group-paths.ts'
import { type IdentityParts, toldEntity, toldGroup } from './identity-parts.ts'
import { mergePath } from './merge-path.ts'
import { type OidcParts, oidcPaths } from './oidc-paths.ts'

export function identityEngine(core: IdentityParts & MfaIdentityParts & OidcParts): Engine {
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

const BY = {
  id: text('By its ID', { fallback: '' }),
  name: foldedField(text('By its name', { fallback: '' }), 'case'),
  alias_id: text('By the ID of an alias of it', { fallback: '' }),
  alias_name: text('By the name of an alias of it, with alias_mount_accessor', { fallback: '' }),
  alias_mount_accessor: text('Accessor of the auth method of alias_name', { fallback: '' }),
}

interface By {
  readonly id: string
  readonly name: string
  readonly alias_id: string
  readonly alias_name: string
  readonly alias_mount_accessor: string
}

/** Ways to find something by one of its names. */
interface Finders<T> {
  id(id: string): T | undefined
  name(name: string): T | undefined
  aliasId(id: string): T | undefined
  alias(mountAccessor: string, name: string): T | undefined
}

function lookupPaths(core: IdentityParts): Path[] {
  return [
    path({
      pattern: 'lookup/entity',
      summary: 'The entity of an ID, a name or an alias',
      fields: BY,
      update(by) {
        const { identity } = core.open
        const entity = lookedUp(by, {
          id: (id) => identity.current(id),
          name: (name) => identity.entityNamed(name),
          aliasId: (id) => identity.alias(id)?.entity,
          alias: (accessor, name) => identity.entityOfAlias(accessor, name),
        })
        return entity && { data: toldEntity(core, entity) }
      },
    }),
    path({
      pattern: 'lookup/group',
      summary: 'The group of an ID, a name or an alias',
      fields: { ...BY, alias_name: foldedField(BY.alias_name, 'case') },
      update(by) {
        const { identity } = core.open
        const group = lookedUp(by, {
          id: (id) => identity.group(id),
          name: (name) => identity.groupNamed(name),
          aliasId: (id) => identity.groupOfAliasId(id),
          alias: (accessor, name) => identity.groupOfAlias(accessor, name),
        })
        return group && { data: toldGroup(core, group) }
      },
    }),
  ]
}

/** Throws a Rejection (400) where it is not said by what, or by several things. */
function lookedUp<T>(by: By, find: Finders<T>): T | undefined {
  const { alias_id: aliasId, alias_mount_accessor: accessor, alias_name: alias, id, name } = by
  const ways = [id, name, aliasId, alias].filter((given) => given !== '')
  if (ways.length === 0) throw new Rejection(400, 'query parameter not supplied')
  if (ways.length > 1)
    throw new Rejection(400, 'query parameters conflict; please supply distinct set of query parameters')
  if ((alias === '') !== (accessor === '')) {
    throw new Rejection(400, "both 'alias_name' and 'alias_mount_accessor' needs to be set")
  }
  if (id !== '') return find.id(id)
  if (name !== '') return find.name(name)
  return aliasId === '' ? find.alias(accessor, alias) : find.aliasId(aliasId)
}
