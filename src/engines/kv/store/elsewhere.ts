/** What is answered where no secret can be: a path without `data/` in front, or with nothing behind it. */
import type { EngineCall, EngineVerb, Reply } from '../../framework/engine.ts'

const ROOTS = new Set(['metadata', 'data', 'delete', 'undelete', 'destroy'])
const COMMANDS: Readonly<Record<EngineVerb, string>> = {
  read: 'get',
  list: 'list',
  scan: 'scan',
  create: 'put',
  update: 'put',
  patch: 'patch',
  delete: 'delete',
}

/** The commonest mistake of all: a path without `data/`. Stock clients show the warning to their users. */
export function elsewhere(_input: object, { path, verb }: EngineCall): Reply {
  const isRoot = ROOTS.has(path.replace(/\/$/, ''))
  const warning = isRoot
    ? 'Non-listing operations on the root of a K/V v2 mount are not supported.'
    : `Invalid path for a versioned K/V secrets engine. See the API docs for the appropriate API endpoints to use. If using the Vault CLI, use 'vault kv ${COMMANDS[verb]}' for this operation.`
  return { status: 404, warnings: [warning] }
}
