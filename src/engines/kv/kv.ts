/**
 * KV: versioned secrets. A secret has a name, settings and versions. Each write creates a version. A deleted version can be
 * undeleted, a destroyed one cannot.
 *
 * In the store a secret is an entry with its record (`record.ts`) and an entry for the data of each version, with paths that
 * are HMACs. The names in a folder are separate entries (`names.ts`), so no path in the database contains a name. Each
 * change of a secret is one batch: record, data, pruned versions and folders. So check-and-set is exact under concurrency.
 *
 * A mount of version 1 (`plain-paths.ts`) stores its secrets in the same format and behaves like a KV mount without versions.
 */
import { type CheckedOptions, type Engine, type MountOptions, type Path, Rejection } from '../framework/engine.ts'
import { inPath } from '../framework/fields.ts'
import { copyPaths } from './paths/copy-paths.ts'
import { dataPaths, versionPaths } from './paths/data-paths.ts'
import { diffPaths } from './paths/diff-paths.ts'
import { configPaths, unsupportedPath, metadataPaths } from './paths/metadata-paths.ts'
import { plainPaths } from './paths/plain-paths.ts'
import { searchPaths } from './paths/search-paths.ts'
import { transactionPaths } from './paths/transaction-paths.ts'
import { treePaths } from './paths/tree-paths.ts'
import { watchPaths } from './paths/watch-paths.ts'
import { kvPath } from './store/rights.ts'
import { RECORDS_PREFIX } from './store/secrets.ts'

const UPGRADED =
  'the mount now has version 2: secrets are below data/, and the current value of each secret is its version 1'

/**
 * Checks the option `version`: 1 unless given. It is stored only if the caller gave it, because clients that manage mounts
 * compare the options that they read with those that they set. `before` is given when a mount is tuned. An upgrade is immediate,
 * as both versions have the same format. Throws a Rejection (400).
 */
function checkVersion(given: MountOptions, before?: MountOptions): CheckedOptions {
  const { version = '1' } = given
  if (before?.['version'] === '2' && version === '1') throw new Rejection(400, 'cannot downgrade mount from version 2')
  if (version !== '1' && version !== '2') throw new Rejection(400, 'the version of a kv mount must be 1 or 2')
  const isUpgraded = before !== undefined && before['version'] !== '2' && version === '2'
  return { options: { ...given }, ...(isUpgraded && { warnings: [UPGRADED] }) }
}

export interface KvOptions {
  /** Interval of heartbeats in streams of `watch`. */
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
      summary: 'Not supported: secrets are below data/, their settings below metadata/',
      fields: { path: inPath('Reject a path without data/ or metadata/') },
      anyFields: true,
      read: unsupportedPath,
      list: unsupportedPath,
      scan: unsupportedPath,
      update: unsupportedPath,
      patch: unsupportedPath,
      delete: unsupportedPath,
    }),
  ]
}

/** The engine `kv`; without options as in servers. */
export function kvEngine(options: KvOptions = {}): Engine {
  const versioned = versionedPaths(options)
  return {
    type: 'kv',
    description: 'versioned key/value secret storage',
    aliases: { 'kv-v1': { version: '1' }, 'kv-v2': { version: '2' } },
    counted: { noun: 'secrets', folder: RECORDS_PREFIX },
    // Vault's type of a version 1 mount before KV had versions, which clients still send.
    furtherTypes: ['generic'],
    checkOptions: checkVersion,
    paths: versioned,
    pathsFor: ({ version }) => (version === '2' ? versioned : plainPaths),
  }
}

export const kv = kvEngine()
