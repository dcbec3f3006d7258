/**
 * Cubbyhole: a place for each token that nobody else can reach, not even root, and that goes with the token. It is the
 * smallest engine there is, and the one that docs/adding-an-engine.md explains.
 *
 * What a caller writes is kept as the JSON text that came, so numbers are given back as they were written.
 */
import { JsonText } from '../../platform/operation.ts'
import { type Engine, type EngineCall, path, Rejection } from '../framework/engine.ts'
import { inPath } from '../framework/fields.ts'

/** What the store takes in one path, less what stands before the name. */
const NAME_BYTES_MAX = 3072

/** Below a mount's prefix: everything that a token has put there. */
export function cubbyholePrefix(tokenHash: string): string {
  return `${tokenHash}/`
}

function ownPrefix({ caller }: EngineCall): string {
  if (caller.tokenType === 'service') return cubbyholePrefix(caller.tokenHash)
  throw new Rejection(400, "cubbyhole operations are only supported by 'service' type tokens")
}

/** An empty name would be the folder itself. */
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
      summary: 'Secrets of the calling token alone',
      fields: { path: inPath('Name of the secret') },
      anyFields: true,
      exists: ({ path: name }, call) => call.storage.pending(entryPath(name, call)) !== undefined,
      read({ path: name }, call) {
        const kept = call.storage.get(entryPath(name, call))
        return kept && { data: new JsonText(kept.toString('utf8')) }
      },
      update({ path: name }, call) {
        const at = entryPath(name, call)
        if (Object.keys(call.data).length === 0) throw new Rejection(400, 'missing data fields')
        if (Buffer.byteLength(name) > NAME_BYTES_MAX)
          throw new Rejection(400, `a name has at most ${NAME_BYTES_MAX} bytes`)
        const value = Buffer.from(call.bodyText ?? JSON.stringify(call.data))
        return { batch: { puts: [{ path: at, value }], deletes: [] } }
      },
      delete({ path: name }, call) {
        const at = entryPath(name, call)
        // A folder is no secret: there is nothing to remove.
        return at.endsWith('/') || Buffer.byteLength(name) > NAME_BYTES_MAX
          ? undefined
          : { batch: { puts: [], deletes: [at] } }
      },
      list({ path: folder }, call) {
        return { data: { keys: call.storage.list(ownPrefix(call) + folder) } }
      },
    }),
  ],
}
