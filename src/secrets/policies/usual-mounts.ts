/**
 * The paths that fold names, at the places where their engines usually are. For who judges policies without a server and
 * so knows no mounts. A test compares them with what the engines declare.
 */
import { type Canonical, canonicalAt, PathTable } from '../../engines/framework/path-table.ts'
import { path, type Path } from '../../engines/framework/engine.ts'
import { inPath, type EngineField } from '../../engines/framework/fields.ts'
import type { NameFold } from '../../engines/framework/name-fold.ts'

/** By pattern, the parameters and the fields of the body that fold. */
const FOLDS: Readonly<Record<string, Readonly<Record<string, NameFold>>>> = {
  'auth/userpass/users/:username': { username: 'case', groups: 'case and spaces' },
  'auth/userpass/users/:username/:setting': { username: 'case' },
  'auth/userpass/login/:username': { username: 'case' },
  'auth/approle/role/:role_name': { role_name: 'case', groups: 'case and spaces' },
  'auth/approle/role/:role_name/:setting': { role_name: 'case', groups: 'case and spaces' },
  'auth/approle/role/:role_name/:of/:action': { role_name: 'case' },
  'identity/entity': { name: 'case' },
  'identity/entity/id/:id': { name: 'case' },
  'identity/entity/name/:name': { name: 'case' },
  'identity/group': { name: 'case' },
  'identity/group/id/:id': { name: 'case' },
  'identity/group/name/:name': { name: 'case' },
  'identity/group-alias': { name: 'case' },
  'identity/group-alias/id/:id': { name: 'case' },
  'identity/lookup/entity': { name: 'case' },
  'identity/lookup/group': { name: 'case', alias_name: 'case' },
  'sys/config/auditing/request-headers/:header': { header: 'case' },
  'sys/config/ui/headers/:header': { header: 'case' },
  'sys/locked-users/:mount_accessor/unlock/:alias_identifier': { alias_identifier: 'case' },
  'sys/policies/acl/:name*': { name: 'case and spaces' },
  'sys/policies/detailed/acl/:prefix*': { prefix: 'case' },
  'sys/policy/:name*': { name: 'case and spaces' },
}

function declared([pattern, folds]: readonly [string, Readonly<Record<string, NameFold>>]): Path {
  const fields: Record<string, EngineField<string>> = {}
  for (const [name, fold] of Object.entries(folds)) fields[name] = inPath('', { fold })
  return path({ pattern, summary: '', fields })
}

let table: PathTable | undefined

/** The canonical form of a path of a server whose engines are mounted where they usually are. */
export const usualCanonical: Canonical = (given) => {
  table ??= new PathTable(Object.entries(FOLDS).map(declared))
  return canonicalAt(given, { mount: { paths: table }, rest: given })
}
