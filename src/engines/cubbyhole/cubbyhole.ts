/**
 * Cubbyhole: private storage of each token, which no other token can access, not even root, and which is deleted with the
 * token. It is the smallest engine, and the example in docs/adding-an-engine.md.
 *
 * The data is stored as the JSON text of the request, so numbers are returned as they were written.
 */
import { JsonText } from '../../platform/operation.ts'
import { type Engine, type EngineCall, path, Rejection } from '../framework/engine.ts'
import { inPath } from '../framework/fields.ts'

/** The limit of a path in the store, minus the prefix of the name. */
const NAME_BYTES_MAX = 3072

/** The prefix of all entries of a token, below that of the mount. */
export function cubbyholePrefix(tokenHash: string): string {
  return `${tokenHash}/`
}

function ownPrefix({ caller }: EngineCall): string {
  if (caller.tokenType === 'service') return cubbyholePrefix(caller.tokenHash)
  throw new Rejection(400, "cubbyhole operations are only supported by 'service' type tokens")
}

function entryPath(name: string, call: EngineCall): string {
  const prefix = ownPrefix(call)
  if (name === '') throw new Rejection(400, 'missing path')
  return prefix + name
}

export const cubbyhole: Engine = {
  type: 'cubbyhole',
  description: 'per-token private secret storage',
  isSingle: true,
  paths: [
    path({
      pattern: ':path*',
      summary: 'Private secrets of the calling token',
      fields: { path: inPath('Name of the secret') },
      anyFields: true,
      exists: ({ path: name }, call) => call.storage.pending(entryPath(name, call)) !== undefined,
      read({ path: name }, call) {
        const stored = call.storage.get(entryPath(name, call))
        return stored && { data: new JsonText(stored.toString('utf8')) }
      },
      update({ path: name }, call) {
        const entry = entryPath(name, call)
        if (Object.keys(call.data).length === 0) throw new Rejection(400, 'missing data fields')
        if (Buffer.byteLength(name) > NAME_BYTES_MAX)
          throw new Rejection(400, `a name can have at most ${NAME_BYTES_MAX} bytes`)
        const value = Buffer.from(call.bodyText ?? JSON.stringify(call.data))
        return { batch: { puts: [{ path: entry, value }], deletes: [] } }
      },
      delete({ path: name }, call) {
        const entry = entryPath(name, call)
        // A folder is not a secret.
        return entry.endsWith('/') || Buffer.byteLength(name) > NAME_BYTES_MAX
          ? undefined
          : { batch: { puts: [], deletes: [entry] } }
      },
      list({ path: folder }, call) {
        return { data: { keys: call.storage.list(ownPrefix(call) + folder) } }
      },
    }),
  ],
}
