/**
 * Secrets without versions: a mount whose option `version` is 1. A secret is kept as the first version of itself, written
 * over each time, so that a mount that is tuned to version 2 needs nothing done to it, and none of it is away for a while.
 */
import { JsonText } from '../../../platform/operation.ts'
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { FieldError, inPath, secondsOf } from '../../framework/fields.ts'
import { exactBody } from '../store/exact-body.ts'
import { list, LISTING, scan } from '../store/listing.ts'
import { kvPath, PLAIN_READS } from '../store/reads.ts'
import { ChangingSecrets, pendingSecrets, Secrets } from '../store/secrets.ts'

/** The only version that there is. */
const ONLY = 1

function write({ path: name }: { readonly path: string }, call: EngineCall): Reply {
  if (name === '') throw new Rejection(400, 'missing path')
  if (Object.keys(call.data).length === 0) throw new Rejection(400, 'missing data fields')
  const secrets = new ChangingSecrets(call)
  secrets.replace(name, JSON.stringify(exactBody(call)))
  return { batch: secrets.batch }
}

/** How long a reader may keep it: what the secret itself says in `ttl` or `lease`, else what the mount says. */
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
      summary: 'Secrets without versions',
      fields: { ...LISTING, path: inPath('Name of the secret, or a folder') },
      anyFields: true,
      exists: ({ path: name }, call) => pendingSecrets(call).has(name),
      read({ path: name }, call) {
        if (name === '' || name.endsWith('/')) return undefined
        const secrets = new Secrets(call)
        const record = secrets.record(name)
        const json = record && secrets.data(record, ONLY)
        return json === undefined ? undefined : { data: new JsonText(json), leaseSeconds: leaseOf(json, call) }
      },
      update: write,
      delete({ path: name }, call) {
        const secrets = new ChangingSecrets(call)
        secrets.remove(name)
        return { batch: secrets.batch }
      },
      list,
      scan,
    },
    PLAIN_READS,
  ),
]
