/**
 * Commits a handler's reply and makes the answer. The batch, the issued lease and the wrapping token are one commit: either all
 * of it is durable, or the caller receives an error.
 */
import { type CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { denied, type EngineCall, type LeaseRequest, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { runSliced, type SlicedWork } from '../../platform/sliced-work.ts'
import { Fault } from '../../platform/errors.ts'
import { JsonText, type WholeAnswer } from '../../platform/operation.ts'
import { type AnswerContext, answerOf } from './answer.ts'
import type { Lease } from '../leases/lease-entry.ts'
import type { Leases } from '../leases/leases.ts'
import type { AcceptedLogin, PreparedLogin } from '../logins/login.ts'
import type { MfaCredentials } from '../mfa/mfa-header.ts'
import type { Mount } from '../mounts/mounts.ts'
import { withoutKeys } from '../policies/key-filter.ts'
import type { CoreRequestHead } from './parse-request.ts'
import type { AdmittedCaller } from '../tokens/token-admission.ts'
import type { ResponseWrapping } from '../wrapping/wrapping.ts'

/** The services of the core that a commit needs. */
export interface CommitServices {
  /** Throw a Refusal (503) while the core is not active. */
  readonly leases: Leases
  readonly wrapping: ResponseWrapping
  /** Creates the token of a login, or requires an MFA code. Throws a Rejection if the login is refused. */
  login(accepted: AcceptedLogin, credentials: MfaCredentials | undefined): PreparedLogin
  /** Removes aliases of an auth method from their entities. The caller commits `parts`, then calls `onSettled`. */
  releaseAliases(mount: Mount, names: readonly string[]): Pick<PreparedLogin, 'onSettled' | 'parts'>
}

/** A request whose handler has replied. */
export interface HandledRequest {
  readonly head: CoreRequestHead
  readonly resolved: { readonly mount: Mount; readonly rest: string }
  readonly admitted: AdmittedCaller
  /** No policies were checked. */
  readonly isOpen: boolean
  readonly call: Pick<EngineCall, 'signal' | 'requestId'>
  /** The names of a list that the caller may see. */
  readonly grant: { readonly keeps?: ((key: string) => boolean) | undefined; readonly limit?: number | undefined }
  readonly warnings: (visible: Reply | undefined) => readonly string[]
  /** Keeps the reply or the wrapping info for the audit trail. */
  readonly trace: { reply?: Reply | undefined; wrapped?: Readonly<object> | undefined }
}

const LAST_USE = 'Secret cannot be returned; token had one use left, so leased credentials were immediately revoked.'

/** True if more than a batch becomes durable with the reply, or the answer is wrapped. */
export function needsFullCommit(reply: Reply | undefined, head: CoreRequestHead): boolean {
  if (head.wrapping !== undefined) return true
  return reply !== undefined && (reply.lease ?? reply.login ?? reply.parts ?? reply.releasedAliases) !== undefined
}

/** Must follow the handler without an `await` between them: another request could change what the handler has read. */
export async function commitReply(
  core: CommitServices,
  request: HandledRequest,
  reply: Reply | undefined,
): Promise<WholeAnswer> {
  const prepared = prepareCommit(core, request, reply)
  try {
    return await commitPrepared(core, request, reply, prepared)
  } finally {
    prepared.issued?.done()
    prepared.login?.onSettled()
    prepared.released?.onSettled()
    reply?.onSettled?.()
  }
}

interface PreparedCommit {
  /** What is still to be committed. */
  readonly parts: CommitPart[]
  readonly issued: ReturnType<typeof prepareLease> | undefined
  readonly login: PreparedLogin | undefined
  readonly released: Pick<PreparedLogin, 'onSettled'> | undefined
}

function prepareCommit(core: CommitServices, request: HandledRequest, reply: Reply | undefined): PreparedCommit {
  const { head, resolved } = request
  const { mount } = resolved
  const parts: CommitPart[] = reply?.batch ? [{ storage: mount.storage, batch: reply.batch }] : []
  const issued = reply?.lease && prepareLease(core, request, reply.lease)
  if (issued) parts.push(issued.part)
  parts.push(...(reply?.parts ?? []))
  const login = reply?.login && core.login({ mount, path: head.path, login: reply.login }, head.mfa)
  if (login) parts.push(...login.parts)
  const released = reply?.releasedAliases && core.releaseAliases(mount, reply.releasedAliases)
  if (released) parts.push(...released.parts)
  return { parts, issued, login, released }
}

async function commitPrepared(
  core: CommitServices,
  request: HandledRequest,
  reply: Reply | undefined,
  { issued, login, parts }: PreparedCommit,
): Promise<WholeAnswer> {
  const { grant, trace, warnings } = request
  if (login?.refusal) {
    // What the auth method and the MFA code have used up stays used.
    if (parts.length > 0) await Storage.commitAll(parts)
    throw login.refusal
  }
  const full = reply && issued ? { ...reply, leased: leaseSummary(issued.lease) } : (login?.reply ?? reply)
  const isRestricted = full?.data !== undefined && (grant.keeps !== undefined || grant.limit !== undefined)
  // Restricting a list yields to other requests, so everything that was read before is committed first.
  if (isRestricted && parts.length > 0) await Storage.commitAll(parts.splice(0))
  const visible = isRestricted ? await runSliced(restrictList(full, grant), request.call) : full
  trace.reply = visible
  const answer =
    wrapAnswer(core, request, visible, parts) ?? answerOf(visible, answerContext(request), warnings(visible))
  if (parts.length > 0) await Storage.commitAll(parts)
  if (issued) await requireLiveToken(core, request, issued.lease)
  return answer
}

/** Wraps the answer and adds the parts of the wrapping token; undefined where nothing is wrapped. */
function wrapAnswer(
  core: CommitServices,
  request: HandledRequest,
  visible: Reply | undefined,
  parts: CommitPart[],
): WholeAnswer | undefined {
  const { head, trace, warnings } = request
  if (!head.wrapping || visible?.wrapped) return undefined
  // A wrapped 404 would have status 200, and the caller would take a refused change for a successful one.
  if (visible?.status === 404 && visible.data === undefined && visible.auth === undefined) return undefined
  const whole = answerOf(visible, answerContext(request), warnings(visible))
  if (whole.body === undefined) return undefined
  if (visible?.bare !== undefined || visible?.text) throw unwrappable()
  // A list without names is a 404 without an envelope.
  if (typeof whole.body !== 'string' || !whole.body.startsWith('{"request_id"')) return undefined
  // Otherwise any client could fill the disk with wrapped answers of open endpoints. A login requires credentials.
  if (request.isOpen && !visible?.auth) throw new Rejection(400, 'response wrapping requires a token')
  const { jwt: isJwt, ttlSeconds } = head.wrapping
  const wrappedAccessor = visible?.auth?.accessor
  const { info, parts: wrappingParts } = core.wrapping.wrap(whole.body, {
    ttlSeconds,
    isJwt,
    creationPath: head.path,
    wrappedAccessor,
  })
  parts.push(...wrappingParts)
  trace.reply = undefined
  trace.wrapped = info
  return answerOf({ wrapped: info }, answerContext(request))
}

function answerContext({ call: { requestId }, head: { verb } }: HandledRequest): AnswerContext {
  return { verb, requestId }
}

/** For an answer without an envelope: it must not be sent unwrapped. */
export function unwrappable(): Rejection {
  return new Rejection(400, 'the response of this endpoint cannot be wrapped')
}

function prepareLease(core: CommitServices, { admitted, head, resolved }: HandledRequest, order: LeaseRequest) {
  const { caller, expiresAtMs, leaseOwner } = admitted
  return core.leases.prepare(resolved.mount, {
    path: head.path,
    rest: resolved.rest,
    tokenHash: leaseOwner,
    // A batch token has no entry that expires, so its leases must not outlast it.
    untilMs: caller.tokenType === 'service' ? undefined : expiresAtMs,
    order,
  })
}

/** Throws a Rejection if the lease cannot outlast the request. */
async function requireLiveToken(core: CommitServices, { admitted }: HandledRequest, lease: Lease): Promise<void> {
  const { caller, use } = admitted
  const isLastUse = use?.revokeSpent !== undefined
  // The token was revoked meanwhile, perhaps by a revocation that has listed the token's leases already.
  if (caller.tokenHash !== '' && !admitted.isValid() && !isLastUse) {
    await core.leases.revoke(lease.id)
    throw denied()
  }
  // The lease is revoked with the token when this request ends.
  if (isLastUse) throw new Rejection(400, LAST_USE)
}

function leaseSummary({ id, renewable, ttlSeconds }: Lease): NonNullable<Reply['leased']> {
  return { id, renewable, seconds: ttlSeconds }
}

/** Restricts a list to the names that the caller may see, also for engines that do not apply the limits of policies. */
export function* restrictList(reply: Reply, { keeps, limit = 0 }: HandledRequest['grant']): SlicedWork<Reply> {
  const kept = keeps ? yield* filterKeys(reply, keeps) : reply
  if (limit <= 0 || kept.data instanceof JsonText) return kept
  const keys = kept.data?.['keys']
  if (!Array.isArray(keys) || keys.length <= limit) return kept
  const first = new Set<unknown>(keys.slice(0, limit))
  return yield* filterKeys(kept, (key) => first.has(key))
}

function* filterKeys({ data, warnings }: Reply, keeps: (key: string) => boolean): SlicedWork<Reply> {
  if (data instanceof JsonText) throw new Fault('a list whose names are to be filtered is JSON text already')
  return { data: yield* withoutKeys(data ?? {}, keeps), ...(warnings && { warnings }) }
}
