/**
 * Versioned secrets. A secret is a name with settings and versions; each write makes a version, a deleted one can come
 * back, a destroyed one cannot (spec §3.3).
 *
 * In the store a secret is one entry with its record (`record.ts`) and one for each version's data, both named by an
 * HMAC; the folders of names are entries of their own (`names.ts`), so nothing in the database shows a name. Each change
 * of a secret is one batch: record, data, what is pruned, folders. So check-and-set is exact whatever runs beside it.
 */
import { type Engine, type EngineVerb, type Handler, path, type Reply } from '../engine.ts'
import { inPath } from '../fields.ts'
import { configPaths } from './config-paths.ts'
import { dataPaths } from './data-paths.ts'
import { metadataPaths } from './metadata-paths.ts'
import { checkVersion } from './options.ts'
import { versionPaths } from './version-paths.ts'

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
const elsewhere: Handler<{ readonly path: string }> = ({ path: given }, { verb }): Reply => {
  const isRoot = ROOTS.has(given.replace(/\/$/, ''))
  const warning = isRoot
    ? 'Non-listing operations on the root of a K/V v2 mount are not supported.'
    : `Invalid path for a versioned K/V secrets engine. See the API docs for the appropriate API endpoints to use. If using the Vault CLI, use 'vault kv ${COMMANDS[verb]}' for this operation.`
  return { status: 404, warnings: [warning] }
}

export const kv: Engine = {
  type: 'kv',
  description: 'versioned key/value secret storage',
  aliases: { 'kv-v1': { version: '1' }, 'kv-v2': { version: '2' } },
  checkOptions: checkVersion,
  paths: [
    ...configPaths,
    ...dataPaths,
    ...metadataPaths,
    ...versionPaths,
    path({
      pattern: ':path*',
      summary: 'Nothing: secrets are below data/, their settings below metadata/',
      fields: { path: inPath('A path without data/ or metadata/') },
      anyFields: true,
      read: elsewhere,
      list: elsewhere,
      scan: elsewhere,
      update: elsewhere,
      patch: elsewhere,
      delete: elsewhere,
    }),
  ],
}
