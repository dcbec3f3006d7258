/** What to do after an error of the secrets core. */
import { ApiError, SEALED } from '../api/client.ts'

export interface FailureHint {
  readonly text: string
  /** A view that helps, below `/ui`. */
  readonly link?: { readonly title: string; readonly to: string }
}

const SEAL = { title: 'Open Seal', to: '/seal' }
const REPLICATION = { title: 'Open Replication', to: '/dr' }

export type FailureKind = 'sealed' | 'login' | 'refused' | 'missing' | 'other'

interface Caller {
  readonly hasToken: boolean
  readonly policies: readonly string[]
}

/** What the secrets core answers for a path without a mount. It does not tell other callers whether the mount exists. */
const NO_MOUNT = /no handler for route|preflight capability check/

/** What a view says in place of data. */
export function failureKind(error: Error, { hasToken, policies }: Caller): FailureKind {
  if (!(error instanceof ApiError)) return 'other'
  if (error.message === SEALED) return 'sealed'
  if (!error.isForbidden) return 'other'
  if (!hasToken) return 'login'
  // A root token has no policies that could be lacking: a private directory is refused to it, too.
  if (policies.includes('root')) return NO_MOUNT.test(error.message) ? 'missing' : 'other'
  return 'refused'
}

/** Undefined if the message of the server says enough. */
export function failureHint(error: Error): FailureHint | undefined {
  if (!(error instanceof ApiError)) return undefined
  const { message, status } = error
  if (message.includes('DR secondary mode')) {
    return {
      text: 'This server is a DR secondary and serves no secrets. Use the web interface of its primary.',
      link: REPLICATION,
    }
  }
  if (/replaced by|fenced|isolated/.test(message) && status === 503) {
    return { text: 'This server is a fenced primary and serves no secrets.', link: REPLICATION }
  }
  if (/\bsealed\b/i.test(message) || (status === 503 && /not initialized/i.test(message))) {
    return { text: 'The secrets core must be unsealed with key shares first.', link: SEAL }
  }
  if (status === 404) return { text: 'It does not exist, or it was deleted since the list was loaded.' }
  if (status === 429) return { text: 'There were too many requests. Wait some seconds, then retry.' }
  if (status >= 500) return { text: 'The log of the server has the reason.' }
  return undefined
}
