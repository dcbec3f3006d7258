/**
 * One secret, again each time when it may be another one: after a change that the store tells (versioned secrets), after
 * a while (others), or when its lease cannot be renewed for long enough.
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
import { CommandError, type CommandIo } from '../../framework/command-shape.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { changesFrom, cursorOfNow } from '../kv/change-polls.ts'
import { kvPlace } from '../kv/secret-path.ts'
import { ANSWER_MS, askCore, briefly, type CoreAccess } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'

/** A secret whose changes are told is read this often all the same. */
const REREAD_MS = 300_000

/** Something that the same reading would find again. */
class FinalFault extends CommandError {
  readonly isFinal = true
}

export type SecretData = Readonly<Record<string, unknown>>

export interface FollowOptions {
  /** Of the moment when it is looked at. */
  readonly core: CoreAccess
  readonly io: CommandIo
  readonly signal: AbortSignal
  readonly warn: (message: string) => void
  /** How often a secret is read whose changes are not told. */
  readonly pollMs: number
  /** Resolves when there is another token, and when the signal aborts. */
  readonly another: (signal: AbortSignal) => Promise<void>
  /** Called with each lease that comes with a secret. */
  readonly leased: (path: string, leaseId: string) => void
  /** By when the first reading must have succeeded, on the monotonic clock. */
  readonly firstUntilMs: number
}

interface Lease {
  readonly id: string
  readonly seconds: number
  readonly isRenewable: boolean
}

interface Reading {
  readonly data: SecretData
  /** Absent for what does not end. */
  readonly lease: Lease | undefined
}

/** Ends when the signal aborts. Throws CommandError where the first reading fails. */
export async function* secretVersions(path: string, options: FollowOptions): AsyncGenerator<SecretData> {
  const { another, signal, warn } = options
  let untilMs: number | undefined = options.firstUntilMs
  const watch = new Watch(path, options)
  while (!signal.aborted) {
    const until = untilMs === undefined ? { meanwhile: 'the last values stay' } : { untilMs }
    const persistence: RetryOptions = { signal, warn, another, what: path, ...until }
    const found = await retryUntilSuccess(async () => {
      // Before the reading, so that no change is missed between the two.
      await watch.begin()
      return readSecret(path, options)
    }, persistence)
    if (!found) return
    untilMs = undefined
    if (found.lease) options.leased(path, found.lease.id)
    yield found.data
    if (found.lease) await kept(found.lease, path, options)
    else await watch.change()
  }
}

async function readSecret(path: string, { core, signal }: FollowOptions): Promise<Reading> {
  const late = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)])
  const answer = await askCore(core, { path, signal: late }).catch(async (error: unknown) => {
    const isForbidden = error instanceof RefusedByAgent && error.status === 403
    const advice = isForbidden ? await adviceOn(core, path) : ''
    throw advice === '' ? error : new FinalFault(`${messageOf(error)}${advice}`)
  })
  const outer = answer?.fields.value('data')
  if (!answer || !isJsonObject(outer)) throw new FinalFault(`no value found at ${path}${await adviceOn(core, path)}`)
  const seconds = answer.fields.number('lease_duration')
  const [id, isRenewable] = [answer.fields.text('lease_id'), answer.fields.boolean('renewable')]
  return { data: innerData(outer, path), lease: id !== '' && seconds > 0 ? { id, seconds, isRenewable } : undefined }
}

/** The path that was meant, where the secret is in a versioned store and `data/` is missing; empty otherwise. */
async function adviceOn(core: CoreAccess, path: string): Promise<string> {
  try {
    const { isVersioned, mount, secret } = await kvPlace(core, path, undefined)
    if (!isVersioned || secret === '' || secret.startsWith('data/')) return ''
    return `; ${mount}/ is a versioned store: give -secret=${mount}/data/${secret}`
  } catch (error) {
    if (error instanceof CommandError) return ''
    throw error
  }
}

/** A versioned secret's own data; what is about the version is none of it. */
function innerData(outer: SecretData, path: string): SecretData {
  if (!isJsonObject(outer['metadata']) || !('data' in outer)) return outer
  if (isJsonObject(outer['data'])) return outer['data']
  throw new FinalFault(`no value found at ${path}: the newest version is deleted`)
}

/** Renews a lease; resolves when the secret is to be read anew. */
async function kept({ id, isRenewable, seconds }: Lease, path: string, options: FollowOptions): Promise<void> {
  const { signal, warn } = options
  for (let term = seconds; !signal.aborted; ) {
    await pause(term * RENEW_AFTER_PART * 1000, signal)
    if (!isRenewable) return
    const endsMs = performance.now() + term * (1 - RENEW_AFTER_PART) * 1000
    const request = { method: 'PUT', path: 'sys/leases/renew', body: { lease_id: id } } as const
    const what = `the lease of ${path}`
    try {
      const answer = await retryUntilSuccess(() => briefly(options.core, request, signal), {
        signal,
        warn,
        what,
        untilMs: endsMs,
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

/** Waits for a change of one secret, where its store tells changes and the token may hear them. */
class Watch {
  readonly #path: string
  readonly #options: FollowOptions
  #cursor: string | undefined
  /** Path of the watch; undefined while it is not known, false where there is none. */
  #at: string | false | undefined

  constructor(path: string, options: FollowOptions) {
    this.#path = path
    this.#options = options
  }

  async begin(): Promise<void> {
    const { core, signal } = this.#options
    this.#cursor = undefined
    try {
      this.#at ??= await watchPath(core, this.#path)
      if (this.#at !== false) this.#cursor = await cursorOfNow({ core, path: this.#at, signal })
    } catch (error) {
      // It is read in turns then; what is wrong with the server, the reading itself will say.
      if (isFinal(error)) this.#at = false
      else if (!(error instanceof CommandError)) throw error
    }
  }

  /** Resolves when the secret may be another one. */
  async change(): Promise<void> {
    const { core, io, pollMs, signal } = this.#options
    if (this.#cursor === undefined || !this.#at) {
      await pause(pollMs, signal)
      return
    }
    try {
      const changes = changesFrom(this.#cursor, REREAD_MS, { core, path: this.#at, io, signal })
      await changes.next()
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      // Of another token, perhaps, which the next round finds out.
      this.#at = undefined
      await pause(pollMs, signal)
    }
  }
}

/** False where the secret is not in a store that tells changes. */
async function watchPath(core: CoreAccess, path: string): Promise<string | false> {
  const { isVersioned, mount, secret } = await kvPlace(core, path, undefined)
  return isVersioned && secret.startsWith('data/') ? `${mount}/watch/${secret.slice('data/'.length)}` : false
}
