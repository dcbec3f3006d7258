/**
 * What a handler replied becomes durable, and then an answer. The batch, the lease that the reply gives out and the token that
 * the answer is wrapped below are one commit: all of it is there, or the caller is told that nothing is.
 */
import { type CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { denied, type EngineCall, type LeaseRequest, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { runSliced, type SlicedWork } from '../../platform/sliced-work.ts'
import { Fault } from '../../platform/errors.ts'
import { JsonText, type WholeAnswer } from '../../platform/operation.ts'
import { type Answered, answerOf } from './answer.ts'
import type { Lease } from '../leases/lease-entry.ts'
import type { Leases } from '../leases/leases.ts'
import type { AcceptedLogin, PreparedLogin } from '../logins/login.ts'
import type { Credentials } from '../mfa/mfa-header.ts'
import type { Mount } from '../mounts/mounts.ts'
import { withoutKeys } from '../policies/key-filter.ts'
import type { RequestHead } from './request.ts'
import type { AdmittedCaller } from '../tokens/token-admission.ts'
import type { ResponseWrapping } from '../wrapping/wrapping.ts'

/** What of the core it needs. */
export interface Settling {
  /** Throw a Refusal (503) while the core is not active. */
  readonly leases: Leases
  readonly wrapping: ResponseWrapping
  /** Makes the token of a login, or asks for a code. Throws a Rejection where there is to be none. */
  login(accepted: AcceptedLogin, credentials: Credentials | undefined): PreparedLogin
  /** Removes aliases of an auth method from their entities: `parts` are to be committed, then `landed` is to be called. */
  releaseAliases(mount: Mount, names: readonly string[]): Pick<PreparedLogin, 'landed' | 'parts'>
}

/** A request that its handler has replied to. */
export interface Replied {
  readonly head: RequestHead
  readonly place: { readonly mount: Mount; readonly rest: string }
  readonly admitted: AdmittedCaller
  /** No policies were asked. */
  readonly isOpen: boolean
  readonly call: Pick<EngineCall, 'signal' | 'requestId'>
  /** What the caller may see of a list. */
  readonly grant: { readonly keeps?: ((key: string) => boolean) | undefined; readonly limit?: number | undefined }
  readonly warnings: (shown: Reply | undefined) => readonly string[]
  /** Keeps what the answer says, for the audit trail. */
  readonly trace: { reply?: Reply | undefined; wrapped?: Readonly<object> | undefined }
}

const LAST_USE = 'Secret cannot be returned; token had one use left, so leased credentials were immediately revoked.'

/** Whether more than a batch is to be made durable for a reply, or its answer is wrapped. */
export function isSpecial(reply: Reply | undefined, head: RequestHead): boolean {
  if (head.wrapping !== undefined) return true
  return reply !== undefined && (reply.lease ?? reply.login ?? reply.parts ?? reply.releasedAliases) !== undefined
}

/**
 * Makes durable what a reply gives out, with its batch and the token that its answer is wrapped below, and makes the answer.
 * Nothing else may come in between a handler and this call.
 */
export async function settled(core: Settling, request: Replied, reply: Reply | undefined): Promise<WholeAnswer> {
  const { grant, head, place, trace, warnings } = request
  const parts: CommitPart[] = reply?.batch ? [{ storage: place.mount.storage, batch: reply.batch }] : []
  const issued = reply?.lease && prepared(core, request, reply.lease)
  if (issued) parts.push(issued.part)
  parts.push(...(reply?.parts ?? []))
  const login = reply?.login && core.login({ mount: place.mount, path: head.path, login: reply.login }, head.mfa)
  if (login) parts.push(...login.parts)
  const released = reply?.releasedAliases && core.releaseAliases(place.mount, reply.releasedAliases)
  if (released) parts.push(...released.parts)
  try {
    const told = reply && issued ? { ...reply, leased: shownLease(issued.lease) } : (login?.reply ?? reply)
    const isNarrow = told?.data !== undefined && (grant.keeps !== undefined || grant.limit !== undefined)
    if (login?.refusal) {
      // What the auth method and the code used up stays so.
      if (parts.length > 0) await Storage.commitAll(parts)
      throw login.refusal
    }
    // Narrowing gives way to others: nothing may be left to be written upon what was read before.
    if (isNarrow && parts.length > 0) await Storage.commitAll(parts.splice(0))
    const shown = isNarrow ? await runSliced(narrowed(told, grant), request.call) : told
    trace.reply = shown
    const answer = wrappedAnswer(core, request, shown, parts) ?? answerOf(shown, answeredOf(request), warnings(shown))
    if (parts.length > 0) await Storage.commitAll(parts)
    if (issued) await checkLasting(core, request, issued.lease)
    return answer
  } finally {
    issued?.done()
    login?.landed()
    released?.landed()
    reply?.landed?.()
  }
}

/** The answer with the token that the whole one is wrapped below, whose parts are added; undefined where nothing is wrapped. */
function wrappedAnswer(
  core: Settling,
  request: Replied,
  shown: Reply | undefined,
  parts: CommitPart[],
): WholeAnswer | undefined {
  const { head, trace, warnings } = request
  if (!head.wrapping || shown?.wrapped) return undefined
  // A wrapped 404 would be 200, and its caller would take a change that was refused for done. It has warnings only.
  if (shown?.status === 404 && shown.data === undefined && shown.auth === undefined) return undefined
  const whole = answerOf(shown, answeredOf(request), warnings(shown))
  if (whole.body === undefined) return undefined
  if (shown?.bare !== undefined || shown?.text) throw unwrappable()
  // A list without names is an answer of 404 without an envelope.
  if (typeof whole.body !== 'string' || !whole.body.startsWith('{"request_id"')) return undefined
  // Otherwise anybody could have the disk filled with answers of open endpoints. A login is worth its credentials.
  if (request.isOpen && !shown?.auth) throw new Rejection(400, 'an answer is wrapped for callers with a token only')
  const { jwt: isJwt, ttlSeconds } = head.wrapping
  const wrappedAccessor = shown?.auth?.accessor
  const { info, parts: own } = core.wrapping.wrap(whole.body, {
    ttlSeconds,
    isJwt,
    creationPath: head.path,
    wrappedAccessor,
  })
  parts.push(...own)
  trace.reply = undefined
  trace.wrapped = info
  return answerOf({ wrapped: info }, answeredOf(request))
}

function answeredOf({ call: { requestId }, head: { verb } }: Replied): Answered {
  return { verb, requestId }
}

/** For an answer that has no envelope: it must not go out bare. */
export function unwrappable(): Rejection {
  return new Rejection(400, 'the answer of this endpoint cannot be wrapped')
}

function prepared(core: Settling, { admitted, head, place }: Replied, order: LeaseRequest) {
  const { caller, expiresAtMs, leaseOwner } = admitted
  return core.leases.prepare(place.mount, {
    path: head.path,
    rest: place.rest,
    tokenHash: leaseOwner,
    // No entry of a batch token expires, so its leases must not outlast it.
    untilMs: caller.tokenType === 'service' ? undefined : expiresAtMs,
    order,
  })
}

/** Throws a Rejection where the lease cannot outlast the request. */
async function checkLasting(core: Settling, { admitted }: Replied, lease: Lease): Promise<void> {
  const { caller, use } = admitted
  const isLastUse = use?.revokeSpent !== undefined
  // Its token was revoked meanwhile, perhaps by one who has looked for its leases already.
  if (caller.tokenHash !== '' && !admitted.isValid() && !isLastUse) {
    await core.leases.revoke(lease.id)
    throw denied()
  }
  // The lease goes with the token, when this request is over.
  if (isLastUse) throw new Rejection(400, LAST_USE)
}

function shownLease({ id, renewable, ttlSeconds }: Lease): NonNullable<Reply['leased']> {
  return { id, renewable, seconds: ttlSeconds }
}

/** What of a list its caller may see, also where the engine knows nothing of policies' limits. */
export function* narrowed(reply: Reply, { keeps, limit = 0 }: Replied['grant']): SlicedWork<Reply> {
  const kept = keeps ? yield* filtered(reply, keeps) : reply
  if (limit <= 0 || kept.data instanceof JsonText) return kept
  const keys = kept.data?.['keys']
  if (!Array.isArray(keys) || keys.length <= limit) return kept
  const first = new Set<unknown>(keys.slice(0, limit))
  return yield* filtered(kept, (key) => first.has(key))
}

/** A list without the names that its caller may not see. */
function* filtered({ data, warnings }: Reply, keeps: (key: string) => boolean): SlicedWork<Reply> {
  if (data instanceof JsonText) throw new Fault('a list whose names are to be filtered is JSON text already')
  return { data: yield* withoutKeys(data ?? {}, keeps), ...(warnings && { warnings }) }
}
