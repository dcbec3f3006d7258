/**
 * Who is calling, on an agent that has servers: the tokens of its own configuration first, everything else is asked of a
 * server and remembered for a while. While no server answers, what was last heard goes on counting, as the compatible
 * system does: a network that is down must not lock an operator out of a host.
 *
 * Only hashes of tokens are kept. A token that a server refuses is remembered too, for a moment, so that a caller who
 * tries again and again asks the server once.
 */
import { createHash } from 'node:crypto'
import { Refusal } from '../kit/errors.ts'
import type { Identity } from '../kit/operation.ts'
import type { Authorizer, Grants, OwnAuthorizer } from './authorizer.ts'

/** As many as the compatible system keeps. */
const REMEMBERED_MAX = 1024
const REFUSED_MS = 2000

interface Remembered {
  /** Undefined: a server refused it. */
  readonly identity: Identity | undefined
  readonly untilMs: number
}

export interface AskingOptions {
  readonly own: OwnAuthorizer
  /** Asks a server. Rejects with a Refusal: `permission_denied` for a token that is none, anything else for no answer. */
  readonly ask: (token: string, remote: string | undefined) => Promise<Grants>
  readonly identityOf: (grants: Grants) => Identity
  readonly ttlMs: number
}

export function createAskingAuthorizer(options: AskingOptions): Authorizer {
  const { own, ttlMs } = options
  const remembered = new Map<string, Remembered>()
  const asking = new Map<string, Promise<Identity>>()

  const remember = (key: string, identity: Identity | undefined) => {
    remembered.delete(key)
    const forMs = identity ? ttlMs : REFUSED_MS
    remembered.set(key, { identity, untilMs: performance.now() + forMs })
    const [oldest] = remembered.keys()
    if (remembered.size > REMEMBERED_MAX && oldest !== undefined) remembered.delete(oldest)
  }

  const ask = async (token: string, remote: string | undefined, key: string): Promise<Identity> => {
    try {
      const identity = options.identityOf(await options.ask(token, remote))
      remember(key, identity)
      return identity
    } catch (error) {
      if (error instanceof Refusal && error.code === 'permission_denied') {
        remember(key, undefined)
        throw error
      }
      const before = remembered.get(key)?.identity
      if (before) return before
      // A server that cannot tell either says why.
      if (error instanceof Refusal && error.code === 'unavailable') throw error
      throw new Refusal('unavailable', 'no server can be asked who this token is, try again')
    } finally {
      asking.delete(key)
    }
  }

  return {
    resolve(token, remote) {
      const known = own.find(token)
      if (known || token === undefined) return known ?? own.resolve(token)
      // A token may be good for some addresses only; which, is the server's business.
      const key = createHash('sha256')
        .update(`${remote ?? ''} ${token}`, 'utf8')
        .digest('base64')
      const before = remembered.get(key)
      if (before && before.untilMs > performance.now()) {
        if (before.identity) return before.identity
        throw new Refusal('permission_denied', 'Permission denied')
      }
      const underway = asking.get(key) ?? ask(token, remote, key)
      asking.set(key, underway)
      return underway
    },
  }
}
