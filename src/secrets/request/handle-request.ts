/**
 * The secrets module: the processing of one request. `handleRequest` resolves the path to a mount and an endpoint, applies the
 * rate limit quota (`quotas/`), admits the caller's token, parses the body and the fields, checks the caller's policies
 * (`authorization.ts`), calls the engine's handler, commits the reply (`commit-reply.ts`) and makes the answer (`answer.ts`).
 * If an audit device is enabled, the request and the response are recorded (`audit/`). A streamed reply (`event-stream.ts`) ends
 * the processing before its first chunk.
 *
 * The core (`core.ts`) is not initialized, sealed, or active. Only an active core has mounts, tokens and policies.
 *
 * Promises:
 * - Nothing is changed or revealed before the caller's token and policies were checked, except on paths that are declared as
 *   open. (The engine may be asked first whether an entry exists, because create and update are two capabilities.)
 * - A write is acknowledged after it is durable, and so is a refusal that is based on a write of another request.
 * - No error of a caller results in a 5xx.
 * - A caller without permission cannot learn whether an entry exists.
 * - No error and no log line has a token, a key or a value.
 *
 * Assumes that handlers follow the rules of `engines/framework/engine.ts`: no other request runs between a handler's reads and
 * its commit.
 *
 * Failure modes:
 * - The core is sealed: requests in flight end with 503. Committed changes stay.
 * - The disk is full: writes fail, reads continue.
 * - An internal fault: 500 with the request ID. The log has the error.
 */
import {
  denied,
  type EngineCall,
  type EngineVerb,
  oneError,
  type Path,
  Rejection,
  type Reply,
  unsupported,
} from '../../engines/framework/engine.ts'
import { readFields } from '../../engines/framework/fields.ts'
import { runSliced } from '../../platform/sliced-work.ts'
import { Refusal, sealed } from '../../platform/errors.ts'
import { type AnyOperation, type Call, handle, type WholeAnswer } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import { answerOf, type RequestAnswer, helpReply, rejectionAnswer, withAccessor } from './answer.ts'
import { RequestAudit } from '../audit/request-audit.ts'
import { AuditFault, type AuditTrail } from '../audit/audit.ts'
import { BodyReader } from './body-reader.ts'
import { admitCaller, type Grant, grantOf, needsSudo } from './authorization.ts'
import { AGENT_LOGIN, CORE_VERBS, isAgentPath } from './core-endpoints.ts'
import { stepUp } from '../mfa/step-up.ts'
import { canonicalOf } from '../../engines/framework/path-table.ts'
import { undeclaredFrom } from './path-parts.ts'
import { fencedPrimary, isServedOnSecondary, isServedWhileFenced } from '../dr-endpoints/dr-refusals.ts'
import { RequestCall } from './request-call.ts'
import type { CallerAdmission, Core, Request, ResolvedTarget, RequestTrace } from './request-states.ts'
import { type RequestBody, type CoreRequestHead, requestHead, type Verb } from './parse-request.ts'
import { commitReply, needsFullCommit, restrictList, unwrappable } from './commit-reply.ts'
import { streamedAnswer } from './event-stream.ts'
import { unsupportedPath } from './unsupported-paths.ts'
import { type AdmittedCaller, finishUse } from '../tokens/token-admission.ts'
import { ResponseWrapping } from '../wrapping/wrapping.ts'

/** The operations of the core for `verbs`. */
export function secretsOperations(core: Core, verbs = CORE_VERBS): AnyOperation[] {
  return verbs.map(({ verb, endpoint }) =>
    handle(endpoint, () => ({
      run: (raw, call) => handleRequest(core, verb, raw, call),
      takesLongBody: (token, remote) => core.knows(token, remote),
    })).in(core),
  )
}

/** The calls that agents may make over NATS. */
export function agentLoginOperation(core: Core): AnyOperation {
  return handle(AGENT_LOGIN, () => ({
    async run(raw, call) {
      const path = raw.params['path'] ?? ''
      if (!isAgentPath(path, core.isActive ? core.find(path)?.mount.record.type : 'approle')) {
        throw new Refusal('permission_denied', 'an agent may only log in by AppRole, and renew or revoke its own token')
      }
      return handleRequest(core, 'write', raw, call)
    },
  })).in(core)
}

/** Answers a request. Rejects only for an internal fault. */
export async function handleRequest(core: Core, method: Verb, raw: RawInput, call: Call): Promise<RequestAnswer> {
  const trace: RequestTrace = { accessor: '', mount: undefined, verb: method }
  let status = FAULT
  try {
    const admitted = core.inFlight.admit()
    if (admitted) await admitted
    const answer = await serve(core, method, raw, call, trace)
    status = 'status' in answer ? answer.status : STREAMED
    return withAccessor(answer, trace.accessor, trace.headers)
  } catch (error) {
    const refused = rejectionAnswer(error)
    if (!refused) throw error
    const answer = await afterQueuedCommits(core, method, refused)
    status = answer.status
    return withAccessor(answer, trace.accessor, trace.headers)
  } finally {
    core.requestCounts.add(trace.mount, trace.verb, status)
  }
}

/**
 * A handler that writes decides on queued commits, and so does the admission of a token with a number of uses. Its refusal must not be
 * seen before they are durable: a later read would not show them, and if they fail, the refusal had no reason.
 */
async function afterQueuedCommits(core: Core, verb: Verb, answer: WholeAnswer): Promise<WholeAnswer> {
  const isDecided = READ_VERBS.has(verb) ? answer.status === 403 : answer.status < FAULT
  const queued = isDecided ? core.barrier.settled() : undefined
  if (!queued) return answer
  try {
    await queued
    return answer
  } catch (error) {
    const failed = rejectionAnswer(error)
    if (!failed) throw error
    return failed
  }
}

const FAULT = 500
const STREAMED = 200

/** Throws or rejects with the error. Not `async`, because each promise costs every request a microsecond. */
function serve(core: Core, method: Verb, raw: RawInput, call: Call, trace: RequestTrace): Promise<RequestAnswer> {
  const location = resolveTarget(core, requestHead(method, raw))
  const { head, match, resolved } = location
  trace.verb = head.verb
  trace.mount = resolved?.mount.record.path
  const quota = core.quotas?.take(head.path, resolved, call.remote)
  trace.headers = quota?.headers
  if (core.isSecondary) requireServed(core, match?.path, head.verb)
  else if (!core.isActive && !match?.path.whileSealed) throw sealed()
  else requireUnfenced(core, match?.path)
  const target = { ...location, raw, call, trace }
  const { audit } = core
  const isAudited = audit?.isOn && !isStatePath(match?.path)
  if (quota?.refusal && !(isAudited && quota.isAudited)) return afterBlock(Promise.reject(quota.refusal), quota.blocked)
  if (!isAudited) {
    const request = { ...target, ...admitCaller(core, match?.path, call) }
    return serveAdmitted(core, { ...request, body: bodyReaderOf(core, request) })
  }
  const served = serveAudited(core, target, audit, () => {
    if (quota?.refusal) throw quota.refusal
    return admitCaller(core, match?.path, call)
  })
  return quota?.blocked ? afterBlock(served, quota.blocked) : served
}

/** A block of the caller is durable before the caller is answered. */
async function afterBlock(answer: Promise<RequestAnswer>, blocked: Promise<void> | undefined): Promise<RequestAnswer> {
  await Promise.allSettled([answer, blocked])
  await blocked
  return answer
}

type TargetLocation = Pick<ResolvedTarget, 'head' | 'canonical' | 'givenRest' | 'resolved' | 'match'>

/** Finds the mount and the endpoint of a request, and makes its path canonical. */
function resolveTarget(core: Core, head: CoreRequestHead): TargetLocation {
  const resolved = core.find(head.path)
  const match = resolved?.mount.paths.find(resolved.rest)
  const givenRest = resolved?.rest ?? ''
  const canonical = resolved && match ? canonicalOf(head.path, resolved, match) : { path: head.path }
  if (!resolved || !match || canonical.path === head.path) return { head, canonical, givenRest, resolved, match }
  const { path } = canonical
  return { head: { ...head, path }, canonical, givenRest, resolved: { mount: resolved.mount, rest: match.rest }, match }
}

/** Throws a Rejection if a secondary does not serve the path. */
function requireServed(core: Core, path: Path | undefined, verb: Verb): void {
  if (!isServedOnSecondary(path, READ_VERBS.has(verb))) throw core.disabledOnSecondary()
}

/** Throws a Refusal if a fenced primary does not serve the path. */
function requireUnfenced(core: Core, path: Path | undefined): void {
  const { fence } = core
  if (fence && !isServedWhileFenced(path)) throw fencedPrimary(fence)
}

/** True for paths that are not audited: they show the server's state to unauthenticated callers, or change it while the core is sealed. */
function isStatePath(path: Path | undefined): boolean {
  return path?.unauthenticated === true && path.whileSealed === true
}

/** Records the request before it is executed, and the response before it is sent. */
async function serveAudited(
  core: Core,
  target: ResolvedTarget,
  audit: AuditTrail,
  admit: () => CallerAdmission,
): Promise<RequestAnswer> {
  const admission = resultOf(admit)
  const caller = 'value' in admission ? admission.value : { admitted: core.anonymous, isOpen: false }
  const body = bodyReaderOf(core, { ...target, ...caller })
  const requestAudit = auditOf(core, target, audit, caller.admitted, body)
  try {
    await recordRequest(requestAudit, admission)
    if ('error' in admission) throw admission.error
    const answer = await serveAdmitted(core, { ...target, ...admission.value, body })
    await requestAudit.recordReply(target.trace.reply, target.trace.wrapped)
    return answer
  } catch (error) {
    if (!(error instanceof AuditFault)) await requestAudit.recordError(error)
    throw error
  } finally {
    requestAudit.close()
  }
}

/** If every device fails, the token's use is consumed nevertheless, and is finished here. */
async function recordRequest(requestAudit: RequestAudit, admission: StepResult<CallerAdmission>): Promise<void> {
  try {
    await requestAudit.recordRequest()
  } catch (error) {
    // A use that cannot be stored was not consumed.
    if ('value' in admission) await finishUse(admission.value.admitted).catch(() => undefined)
    throw error
  }
}

const READ_VERBS: ReadonlySet<Verb> = new Set<Verb>(['read', 'list', 'scan', 'help'])

type StepResult<T> = { readonly value: T } | { readonly error: unknown }

function resultOf<T>(step: () => T): StepResult<T> {
  try {
    return { value: step() }
  } catch (error) {
    return { error }
  }
}

function auditOf(
  core: Core,
  target: ResolvedTarget,
  audit: NonNullable<Core['audit']>,
  { caller }: AdmittedCaller,
  body: BodyReader,
): RequestAudit {
  const { call, head, resolved, raw } = target
  const parsed = resultOf(() => body.read().data)
  const { remote, requestId, token } = call
  const data = 'value' in parsed ? parsed.value : undefined
  const mount = resolved?.mount.record
  const nowMs = core.now()
  const undeclaredAt = undeclaredFrom(resolved, head.path)
  const context = { head, undeclaredAt, requestId, token, remote, caller, nowMs, mount, data }
  return new RequestAudit(audit, { ...context, isReadOnly: isReadOnly(target) }, raw)
}

/** A read changes state if its engine issues leases, or if its answer is wrapped. */
function isReadOnly({ head, match, resolved }: ResolvedTarget): boolean {
  const isRead = READ_VERBS.has(head.verb) && match?.path.readChanges !== true
  return isRead && resolved?.mount.engine.revoke === undefined && head.wrapping === undefined
}

/** Serves a request of an admitted caller. Throws or rejects with the error. */
function serveAdmitted(core: Core, request: Request): Promise<RequestAnswer> {
  const { admitted, body, trace } = request
  const { refusal } = body
  if (refusal) throw refusal
  trace.accessor = admitted.caller.accessor
  const answer = executeInFlight(core, request)
  return admitted.use ? finishTokenUse(admitted, answer) : answer
}

/** A refused request also consumes a use of the token. The use is durable before the caller receives the answer. */
async function finishTokenUse(admitted: AdmittedCaller, answer: Promise<RequestAnswer>): Promise<RequestAnswer> {
  const [outcome] = await Promise.allSettled([answer, admitted.use?.written])
  await finishUse(admitted)
  if (outcome.status === 'rejected') throw outcome.reason
  return outcome.value
}

/** The limits depend on the caller's permissions. */
function bodyReaderOf(
  core: Core,
  { admitted, canonical, head, isOpen, match, raw }: ResolvedTarget & CallerAdmission,
): BodyReader {
  const isChecked = !isOpen && !match?.path.withoutToken?.isAllowed()
  const judge = (operation: EngineVerb) =>
    admitted.decide({ ...canonical, operation, data: {}, wrapTtlSeconds: undefined })
  return new BodyReader(head.verb, raw, {
    allowsDeleteBody: match?.path.bodyOfDelete,
    charactersMax: match?.path.bodyCharactersMax,
    isAnonymous: admitted === core.anonymous,
    judge: isChecked ? judge : undefined,
  })
}

/** Executes a request and keeps it in the lists of requests in flight meanwhile. */
async function executeInFlight(core: Core, request: Request): Promise<RequestAnswer> {
  const { call, head, resolved } = request
  const [leaveMount, leave] = [resolved?.mount.activeRequests.enter(), core.inFlight.enter(head.verb, head.path, call)]
  try {
    return await execute(core, request)
  } catch (error) {
    // A failed login is answered once it counts, also for the next active server.
    if (request.match?.path.unauthenticated) await core.failuresRecorded()
    throw error
  } finally {
    leaveMount?.()
    leave()
  }
}

async function execute(core: Core, request: Request): Promise<RequestAnswer> {
  const { head, match, resolved, raw } = request
  const body = request.body.read()
  if (head.verb === 'help' && resolved)
    return answerOf(helpReply(resolved, match?.path), { verb: 'read', requestId: request.call.requestId })
  const input = match
    ? readFields(match.path.fields, { data: body.data, params: match.params }, fieldFault(match.path, head.verb))
    : {}
  const engineCall = resolved && new RequestCall(core, request, resolved, body)
  const authorize = (): AuthorizedVerb => {
    const operation = engineVerbOf(head.verb, input, match?.path, engineCall)
    return { verb: operation, grant: grantOf(request, operation, body) }
  }
  const first = authorize()
  const { grant, verb } = first.grant.mfaMethods?.length
    ? await verifySecondFactor(core, request, first, authorize)
    : first
  if (!resolved || !engineCall) throw new Rejection(404, `no handler for route "${head.path}". route entry not found.`)
  if (!match) throw unsupportedRejection(head.path) ?? new Rejection(404, oneError('unsupported path'))
  if (!grant.sudo && needsSudo(match.path, verb)) throw denied()
  const handler = match.path.handlers[verb]
  if (!handler) {
    throw (
      unsupportedRejection(head.path) ??
      new Rejection(405, match.path.whileSealed ? [] : oneError('unsupported operation'))
    )
  }
  if (head.wrapping) ResponseWrapping.check(head.wrapping.ttlSeconds)
  engineCall.setGrant(verb, grant)
  const outcome = handler(input, engineCall)
  // No `await` for a synchronous handler: no other request may run between its reads and its commit.
  const reply = outcome instanceof Promise ? await outcome : outcome
  if (reply?.stream) {
    if (head.wrapping) throw unwrappable()
    const check = () => authorizeAgain(core, request, verb, body)
    return streamedAnswer(reply.stream, { check, raw })
  }
  if (needsFullCommit(reply, head)) {
    const warnings = (visible: Reply | undefined) => warningsOf(match, body, visible)
    return commitReply(core, { ...request, resolved, warnings, call: engineCall, grant }, reply)
  }
  if (reply?.batch) await resolved.mount.storage.commit(reply.batch)
  const isRestricted = grant.keeps !== undefined || grant.limit !== undefined
  const visible = reply && isRestricted ? await runSliced(restrictList(reply, grant), engineCall) : reply
  request.trace.reply = visible
  const { requestId } = request.call
  return answerOf(visible, { verb: head.verb, requestId }, warningsOf(match, body, visible))
}

function unsupportedRejection(path: string): Rejection | undefined {
  const feature = unsupportedPath(path)
  return feature && unsupported(feature)
}

interface AuthorizedVerb {
  readonly verb: EngineVerb
  readonly grant: Grant
}

/** Verifies the codes that the policies require, then authorizes again: entries and policies may have changed meanwhile. */
async function verifySecondFactor(
  core: Core,
  request: Request,
  { grant }: AuthorizedVerb,
  authorize: () => AuthorizedVerb,
): Promise<AuthorizedVerb> {
  const { mfaMethods: methods = [] } = grant
  await stepUp(core.mfa, request.admitted.caller, methods, request.head.mfa)
  const again = authorize()
  if (again.grant.mfaMethods?.some((name) => !methods.includes(name))) throw denied()
  return again
}

/** Throws a Rejection if the request would not be admitted now. */
function authorizeAgain(core: Core, request: Request, verb: EngineVerb, body: RequestBody): void {
  if (!core.isActive) throw sealed()
  requireUnfenced(core, request.match?.path)
  if (!request.admitted.isValid()) throw new Rejection(403, 'permission denied')
  grantOf(request, verb, body)
}

/** Vault omits the prefix where it parses the fields before the existence check. */
function fieldFault({ exists }: Path, verb: Verb): (name: string, why: string) => Rejection {
  const before = exists && verb === 'write' ? '' : 'Field validation failed: '
  return (name, why) => new Rejection(400, `${before}error converting input for field "${name}": ${why}`)
}

function engineVerbOf(verb: Verb, input: object, path: Path | undefined, call: EngineCall | undefined): EngineVerb {
  if (verb !== 'write') return verb === 'help' ? 'read' : verb
  const exists = call && path?.exists?.(input, call)
  return exists === false ? 'create' : 'update'
}

/** Stock clients show the warnings to their users, so a misspelt parameter is noticed. */
function warningsOf({ path, params }: NonNullable<Request['match']>, { data }: RequestBody, reply: Reply | undefined) {
  if (!reply || path.anyFields) return []
  const names = Object.keys(data)
  const ignored = names.filter((name) => !Object.hasOwn(path.fields, name)).sort()
  const replaced = names.filter((name) => Object.hasOwn(params, name)).sort()
  return [
    ...(ignored.length > 0 ? [`Endpoint ignored these unrecognized parameters: [${ignored.join(' ')}]`] : []),
    ...(replaced.length > 0
      ? [
          `Endpoint replaced the value of these parameters with the values captured from the endpoint's path: [${replaced.join(' ')}]`,
        ]
      : []),
  ]
}
