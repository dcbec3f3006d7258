/**
 * The values of a secret over time: read again after a change notification (versioned secrets), after the poll interval (other
 * secrets), or when its lease cannot be renewed. Leases are revoked when the program has exited.
 */
import {
  isFinal,
  pause,
  type RetryOptions,
  retryUntilSuccess,
  RENEW_AFTER_PART,
  RENEWED_PART_MIN,
} from '../../../login/retry.ts'
import { messageOf } from '../../../platform/errors.ts'
import { AgentRefusal } from '../../client/http-client.ts'
import { QUICK_RESPONSE_MS, sendRequest, requireQuickResponse, type CoreAccess } from '../../core/core-access.ts'
import { CommandError, type CommandIo } from '../../framework/define-command.ts'
import { isJsonObject } from '../../output/json.ts'
import { changesFrom, currentCursor } from '../kv/change-polls.ts'
import { resolveKvPath } from '../kv/secret-path.ts'

/** Interval of reads of a secret with change notification. */
const REREAD_MS = 300_000

/** An error that a retry would repeat. */
class FinalFault extends CommandError {
  readonly isFinal = true
}

export type SecretData = Readonly<Record<string, unknown>>

export interface SecretUpdateOptions {
  /** With the current token. */
  readonly core: CoreAccess
  readonly io: CommandIo
  readonly signal: AbortSignal
  readonly warn: (message: string) => void
  /** Interval of reads of a secret without change notification. */
  readonly pollMs: number
  /** Resolves when the token changes, and when the signal aborts. */
  readonly another: (signal: AbortSignal) => Promise<void>
  /** Called with each lease of a secret. */
  readonly onLease: (path: string, leaseId: string) => void
  /** Deadline of the first read, on the monotonic clock. */
  readonly firstUntilMs: number
}

interface SecretLease {
  readonly id: string
  readonly seconds: number
  readonly isRenewable: boolean
}

interface LeasedSecret {
  readonly data: SecretData
  /** Undefined for a secret that does not expire. */
  readonly lease: SecretLease | undefined
}

/** Ends when the signal aborts. Throws CommandError if the first read fails. */
export async function* secretUpdates(path: string, options: SecretUpdateOptions): AsyncGenerator<SecretData> {
  const { another, signal, warn } = options
  let untilMs: number | undefined = options.firstUntilMs
  const watch = new SecretWatch(path, options)
  while (!signal.aborted) {
    const until = untilMs === undefined ? { meanwhile: 'keeping the last values' } : { untilMs }
    const persistence: RetryOptions = { signal, warn, another, what: path, ...until }
    const secret = await retryUntilSuccess(async () => {
      // Before the read, so that no change is missed.
      await watch.start()
      return readSecret(path, options)
    }, persistence)
    if (!secret) return
    untilMs = undefined
    if (secret.lease) options.onLease(path, secret.lease.id)
    yield secret.data
    if (secret.lease) await renewUntilExpiry(secret.lease, path, options)
    else await watch.nextChange()
  }
}

async function readSecret(path: string, { core, signal }: SecretUpdateOptions): Promise<LeasedSecret> {
  const late = AbortSignal.any([signal, AbortSignal.timeout(QUICK_RESPONSE_MS)])
  const answer = await sendRequest(core, { path, signal: late }).catch(async (error: unknown) => {
    const isForbidden = error instanceof AgentRefusal && error.status === 403
    const hint = isForbidden ? await versionedPathHint(core, path) : ''
    throw hint === '' ? error : new FinalFault(`${messageOf(error)}${hint}`)
  })
  const outer = answer?.fields.value('data')
  if (!answer || !isJsonObject(outer))
    throw new FinalFault(`no value found at ${path}${await versionedPathHint(core, path)}`)
  const seconds = answer.fields.number('lease_duration')
  const [id, isRenewable] = [answer.fields.text('lease_id'), answer.fields.boolean('renewable')]
  return { data: innerData(outer, path), lease: id !== '' && seconds > 0 ? { id, seconds, isRenewable } : undefined }
}

/** Suggests the path with `data/` for a versioned mount; empty otherwise. */
async function versionedPathHint(core: CoreAccess, path: string): Promise<string> {
  try {
    const { isVersioned, mount, secret } = await resolveKvPath(core, path, undefined)
    if (!isVersioned || secret === '' || secret.startsWith('data/')) return ''
    return `; ${mount}/ is versioned: use -secret=${mount}/data/${secret}`
  } catch (error) {
    if (error instanceof CommandError) return ''
    throw error
  }
}

/** The data of a versioned secret without the metadata of the version. */
function innerData(outer: SecretData, path: string): SecretData {
  if (!isJsonObject(outer['metadata']) || !('data' in outer)) return outer
  if (isJsonObject(outer['data'])) return outer['data']
  throw new FinalFault(`no value found at ${path}: the latest version is deleted`)
}

/** Renews a lease; resolves when the secret must be read again. */
async function renewUntilExpiry(
  { id, isRenewable, seconds }: SecretLease,
  path: string,
  options: SecretUpdateOptions,
): Promise<void> {
  const { signal, warn } = options
  for (let term = seconds; !signal.aborted; ) {
    await pause(term * RENEW_AFTER_PART * 1000, signal)
    if (!isRenewable) return
    const expiryMs = performance.now() + term * (1 - RENEW_AFTER_PART) * 1000
    const request = { method: 'PUT', path: 'sys/leases/renew', body: { lease_id: id } } as const
    const what = `the lease of ${path}`
    try {
      const answer = await retryUntilSuccess(() => requireQuickResponse(options.core, request, signal), {
        signal,
        warn,
        what,
        untilMs: expiryMs,
      })
      if (!answer) return
      term = answer.fields.number('lease_duration')
    } catch (error) {
      if (error instanceof CommandError) return
      throw error
    }
    if (term < seconds * RENEWED_PART_MIN) return
  }
}

/** Waits for changes of one secret if its mount notifies of changes and the token may read them. */
class SecretWatch {
  readonly #path: string
  readonly #options: SecretUpdateOptions
  #cursor: string | undefined
  /** API path; undefined while unknown, false without one. */
  #watchPath: string | false | undefined

  constructor(path: string, options: SecretUpdateOptions) {
    this.#path = path
    this.#options = options
  }

  async start(): Promise<void> {
    const { core, signal } = this.#options
    this.#cursor = undefined
    try {
      this.#watchPath ??= await watchPathOf(core, this.#path)
      if (this.#watchPath !== false) this.#cursor = await currentCursor({ core, path: this.#watchPath, signal })
    } catch (error) {
      // The secret is polled instead; the read reports errors of the server.
      if (isFinal(error)) this.#watchPath = false
      else if (!(error instanceof CommandError)) throw error
    }
  }

  /** Resolves when the secret may have changed. */
  async nextChange(): Promise<void> {
    const { core, io, pollMs, signal } = this.#options
    if (this.#cursor === undefined || !this.#watchPath) {
      await pause(pollMs, signal)
      return
    }
    try {
      const changes = changesFrom(this.#cursor, REREAD_MS, { core, path: this.#watchPath, io, signal })
      await changes.next()
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      // The token may have changed: the next read determines the path again.
      this.#watchPath = undefined
      await pause(pollMs, signal)
    }
  }
}

/** False for a mount without change notification. */
async function watchPathOf(core: CoreAccess, path: string): Promise<string | false> {
  const { isVersioned, mount, secret } = await resolveKvPath(core, path, undefined)
  return isVersioned && secret.startsWith('data/') ? `${mount}/watch/${secret.slice('data/'.length)}` : false
}

/** Includes the previous lease, which may still be in use during a replacement. */
const LEASES_PER_PATH_MAX = 2
/** The deletion of an IAM user takes several calls. */
const REVOKE_MS = 10_000

/**
 * Revokes the leases of the program, so that its credentials do not stay valid until their TTL. If the server does not respond or
 * refuses, a warning names the lease.
 */
export class LeaseRevoker {
  readonly #byPath = new Map<string, string[]>()

  add(path: string, leaseId: string): void {
    const others = (this.#byPath.get(path) ?? []).filter((id) => id !== leaseId)
    this.#byPath.set(path, [...others, leaseId].slice(-LEASES_PER_PATH_MAX))
  }

  /** Never rejects. */
  async revokeAll(core: CoreAccess, warn: (message: string) => void): Promise<void> {
    const signal = AbortSignal.timeout(REVOKE_MS)
    const revoke = async (id: string) => {
      try {
        await requireQuickResponse(core, { method: 'PUT', path: 'sys/leases/revoke', body: { lease_id: id } }, signal)
      } catch (error) {
        const why = error instanceof CommandError ? error.message : messageOf(error)
        warn(`cannot revoke lease ${id}, it will expire after its TTL: ${why}`)
      }
    }
    await Promise.all([...this.#byPath.values()].flat().map(revoke))
    this.#byPath.clear()
  }
}
