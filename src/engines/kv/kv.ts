/**
 * Versioned secrets. A secret is a name with settings and versions; each write makes a version, a deleted one can come
 * back, a destroyed one cannot (spec §3.3).
 *
 * In the store a secret is one entry with its record (`record.ts`) and one for each version's data, both named by an
 * HMAC; the folders of names are entries of their own (`names.ts`), so nothing in the database shows a name. Each change
 * of a secret is one batch: record, data, what is pruned, folders. So check-and-set is exact whatever runs beside it.
 *
 * A mount of version 1 (`plain-paths.ts`) keeps its secrets in the same form and answers as secrets without versions do.
 */
import type { Engine, Path } from '../framework/engine.ts'
import { inPath } from '../framework/fields.ts'
import { configPaths } from './paths/config-paths.ts'
import { copyPaths } from './paths/copy-paths.ts'
import { dataPaths } from './paths/data-paths.ts'
import { diffPaths } from './paths/diff-paths.ts'
import { elsewhere } from './store/elsewhere.ts'
import { metadataPaths } from './paths/metadata-paths.ts'
import { checkVersion } from './store/options.ts'
import { plainPaths } from './paths/plain-paths.ts'
import { kvPath } from './store/reads.ts'
import { searchPaths } from './paths/search-paths.ts'
import { transactionPaths } from './paths/transaction-paths.ts'
import { treePaths } from './paths/tree-paths.ts'
import { versionPaths } from './paths/version-paths.ts'
import { watchPaths } from './paths/watch-paths.ts'

export interface KvOptions {
  /** How long a stream of `watch` says nothing before it tells its cursor. */
  readonly heartbeatMs?: number
}

function versionedPaths({ heartbeatMs }: KvOptions): readonly Path[] {
  return [
    ...configPaths,
    ...dataPaths,
    ...metadataPaths,
    ...versionPaths,
    ...transactionPaths,
    ...copyPaths,
    ...diffPaths,
    ...searchPaths,
    ...treePaths,
    ...watchPaths(heartbeatMs),
    kvPath({
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
  ]
}

/** The engine `kv`; without options as servers run it. */
export function kvEngine(options: KvOptions = {}): Engine {
  const versioned = versionedPaths(options)
  return {
    type: 'kv',
    description: 'versioned key/value secret storage',
    aliases: { 'kv-v1': { version: '1' }, 'kv-v2': { version: '2' } },
    // The type of a mount of version 1 before versions existed; clients still send it.
    furtherTypes: ['generic'],
    checkOptions: checkVersion,
    paths: versioned,
    pathsFor: ({ version }) => (version === '2' ? versioned : plainPaths),
  }
}

export const kv = kvEngine()
