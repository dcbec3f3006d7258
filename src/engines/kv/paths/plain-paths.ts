/**
 * Secrets without versions: a mount with the option `version` 1. A secret is stored as its version 1, which each write replaces,
 * so a mount can be tuned to version 2 without a migration.
 */
import { JsonText } from '../../../platform/operation.ts'
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { FieldError, inPath, secondsOf } from '../../framework/fields.ts'
import { exactBody } from '../store/writes.ts'
import { list, LIST_FIELDS, scan } from '../store/listing.ts'
import { kvPath, PLAIN_READS } from '../store/rights.ts'
import { SecretWriter, pendingSecrets, SecretReader } from '../store/secrets.ts'

const ONLY_VERSION = 1

function write({ path: name }: { readonly path: string }, call: EngineCall): Reply {
  if (name === '') throw new Rejection(400, 'missing path')
  if (Object.keys(call.data).length === 0) throw new Rejection(400, 'missing data fields')
  const secrets = new SecretWriter(call)
  secrets.replace(name, JSON.stringify(exactBody(call)))
  return { batch: secrets.batch }
}

/** Validity of the data: the secret's own `ttl` or `lease`, else the default of the mount. */
function leaseOf(json: string, { mount }: EngineCall): number {
  if (!json.includes('"ttl"') && !json.includes('"lease"')) return mount.defaultLeaseSeconds
  const { lease, ttl } = JSON.parse(json) as { readonly ttl?: unknown; readonly lease?: unknown }
  for (const given of [ttl, lease]) {
    if (given === undefined || given === null || given === '') continue
    try {
      return secondsOf(given)
    } catch (error) {
      if (!(error instanceof FieldError)) throw error
    }
  }
  return mount.defaultLeaseSeconds
}

export const plainPaths: readonly Path[] = [
  kvPath(
    {
      pattern: ':path*',
      summary: 'Read, write, list or delete secrets',
      fields: { ...LIST_FIELDS, path: inPath('Name of the secret, or a folder') },
      anyFields: true,
      exists: ({ path: name }, call) => pendingSecrets(call).has(name),
      read({ path: name }, call) {
        if (name === '' || name.endsWith('/')) return undefined
        const secrets = new SecretReader(call)
        const record = secrets.record(name)
        const json = record && secrets.data(record, ONLY_VERSION)
        return json === undefined ? undefined : { data: new JsonText(json), leaseSeconds: leaseOf(json, call) }
      },
      update: write,
      delete({ path: name }, call) {
        const secrets = new SecretWriter(call)
        secrets.remove(name)
        return { batch: secrets.batch }
      },
      list,
      scan,
    },
    PLAIN_READS,
  ),
]
