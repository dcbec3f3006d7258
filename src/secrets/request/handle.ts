/**
 * The secrets room: one request's way through the core. `handle` reads as that list and does no work itself.
 *
 * The core (`core.ts`) is not initialised, sealed, or active. Active, it has its mounts, tokens and policies at hand; a
 * request's path finds the mount, is counted against a quota where there is one (`quotas/`), and, in its engine's table, the path's declaration; fields are read, the caller's
 * policies are asked, the engine computes a reply and a batch, the batch becomes durable, the reply goes out. A reply may
 * be a stream (`event-stream.ts`): then the request is over here, and is counted nowhere, before the first of it goes out.
 *
 * Promises. Nothing is changed or told for a caller before its token and its policies were looked at, except on the few
 * paths that are declared as open. (Its engine may be asked before whether something is there: to create and to update
 * are two rights.) An answer to a write goes out only after the write is durable. No mistake of a caller ends in a
 * 5xx; no answer tells a caller without rights whether something is there. No token, key or value is in an error or a
 * log line.
 *
 * Assumes that handlers keep to the rules of `engines/framework/engine.ts`: no step between reading and writing is interrupted.
 *
 * What can go wrong. The core is sealed while requests are under way: they end with 503, what was committed stays. The
 * disk is full: writes fail, reads go on. A fault: 500 with the request's ID, and the log has the rest.
 */
import {
  denied,
  type EngineCall,
  type EngineVerb,
  oneError,
  type Path,
  Rejection,
  type Reply,
} from '../../engines/framework/engine.ts'
import { readFields } from '../../engines/framework/fields.ts'
import { runSliced } from '../../platform/sliced-work.ts'
import { sealed } from '../../platform/errors.ts'
import type { Call } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import { type Answer, answerOf, rejectionAnswer, signed } from './answer.ts'
import { Account } from '../audit/account.ts'
import { AuditFault, type AuditTrail } from '../audit/audit.ts'
import { BodyReader } from './body-reader.ts'
import { admission } from './entry.ts'
import { helpOf } from './help.ts'
import { stepUp } from '../mfa/step-up.ts'
import { canonicalOf } from '../../engines/framework/path-table.ts'
import { undeclaredFrom } from './path-parts.ts'
import { fencedPrimary } from '../dr/dr-replication.ts'
import { RequestCall } from './request-call.ts'
import type { Core, Entry, Request, Target, Trace } from './request-states.ts'
import { type RequestBody, type RequestHead, requestHead, type Verb } from './request.ts'
import { type Grant, grantOf, needsSudo } from './rights.ts'
import { isSpecial, narrowed, settled, unwrappable } from './commit-reply.ts'
import { streamedAnswer } from './event-stream.ts'
import { type AdmittedCaller, finishUse } from '../tokens/token-admission.ts'
import { ResponseWrapping } from '../wrapping/wrapping.ts'

/** Answers a request; only a fault of ours rejects. */
export async function handle(core: Core, method: Verb, raw: RawInput, call: Call): Promise<Answer> {
  const trace: Trace = { accessor: '', mount: undefined, verb: method }
  let status = FAULT
  try {
    const turn = core.inFlight.turn()
    if (turn) await turn
    const answer = await serve(core, method, raw, call, trace)
    status = 'status' in answer ? answer.status : STREAMED
    return signed(answer, trace.accessor, trace.headers)
  } catch (error) {
    const answer = rejectionAnswer(error)
    if (!answer) throw error
    status = answer.status
    return signed(answer, trace.accessor, trace.headers)
  } finally {
    core.requestCounts.add(trace.mount, trace.verb, status)
  }
}

const FAULT = 500
const STREAMED = 200

/** Throws, or rejects, with what is wrong. (Not `async`, as each promise on the way costs every request a microsecond.) */
function serve(core: Core, method: Verb, raw: RawInput, call: Call, trace: Trace): Promise<Answer> {
  const at = located(core, requestHead(method, raw))
  const { head, match, place } = at
  trace.verb = head.verb
  trace.mount = place?.mount.record.path
  const quota = core.quotas?.take(head.path, place, call.remote)
  trace.headers = quota?.headers
  if (core.isSecondary) requireServed(core, match?.path, head.verb)
  else if (!core.isActive && !match?.path.whileSealed) throw sealed()
  else requireUnfenced(core, match?.path)
  const target = { ...at, raw, call, trace }
  const { audit } = core
  const isRecorded = audit?.isOn && !isState(match?.path)
  if (quota?.refusal && !(isRecorded && quota.isAudited)) throw quota.refusal
  if (!isRecorded) {
    const request = { ...target, ...admission(core, match?.path, call) }
    return served(core, { ...request, body: readerOf(core, request) })
  }
  return recorded(core, target, audit, () => {
    if (quota?.refusal) throw quota.refusal
    return admission(core, match?.path, call)
  })
}

/** Finds what a request is for. From here on its path is canonical. */
function located(core: Core, head: RequestHead): Pick<Target, 'head' | 'canonical' | 'givenRest' | 'place' | 'match'> {
  const place = core.find(head.path)
  const match = place?.mount.paths.find(place.rest)
  const givenRest = place?.rest ?? ''
  const canonical = place && match ? canonicalOf(head.path, place, match) : { path: head.path }
  if (!place || !match || canonical.path === head.path) return { head, canonical, givenRest, place, match }
  const { path } = canonical
  return { head: { ...head, path }, canonical, givenRest, place: { mount: place.mount, rest: match.rest }, match }
}

/** Throws a Rejection for what a secondary does not serve. */
function requireServed(core: Core, path: Path | undefined, verb: Verb): void {
  const { onSecondary = false } = path ?? {}
  const isServed = onSecondary === 'read' ? READING.has(verb) : onSecondary
  if (!isServed) throw core.disabledOnSecondary()
}

/** Throws a Refusal for what a fenced primary does not serve. */
function requireUnfenced(core: Core, path: Path | undefined): void {
  const { fence } = core
  if (fence && !path?.whileFenced && !path?.whileSealed && !path?.onSecondary) throw fencedPrimary(fence)
}

/** What tells the state of the server to anyone, again and again, or changes it before there is a device: no device records it. */
function isState(path: Path | undefined): boolean {
  return path?.unauthenticated === true && path.whileSealed === true
}

/** Serves a request whose two lines are recorded: the one before anything is done for it, the other before it is answered. */
async function recorded(core: Core, target: Target, audit: AuditTrail, enter: () => Entry): Promise<Answer> {
  const entry = outcomeOf(enter)
  const who = 'value' in entry ? entry.value : { admitted: core.nobody, isOpen: false }
  const body = readerOf(core, { ...target, ...who })
  const account = accountOf(core, target, audit, who.admitted, body)
  try {
    await begun(account, entry)
    if ('error' in entry) throw entry.error
    const answer = await served(core, { ...target, ...entry.value, body })
    await account.end(target.trace.reply, target.trace.wrapped)
    return answer
  } catch (error) {
    if (!(error instanceof AuditFault)) await account.fail(error)
    throw error
  } finally {
    account.leave()
  }
}

/** Records the first line. Where no device takes it, the use of the token is taken all the same, and is finished here. */
async function begun(account: Account, entry: Outcome<Entry>): Promise<void> {
  try {
    await account.begin()
  } catch (error) {
    // A use that cannot be written down was not taken.
    if ('value' in entry) await finishUse(entry.value.admitted).catch(() => undefined)
    throw error
  }
}

const READING: ReadonlySet<Verb> = new Set<Verb>(['read', 'list', 'scan', 'help'])

type Outcome<T> = { readonly value: T } | { readonly error: unknown }

function outcomeOf<T>(step: () => T): Outcome<T> {
  try {
    return { value: step() }
  } catch (error) {
    return { error }
  }
}

function accountOf(
  core: Core,
  target: Target,
  audit: NonNullable<Core['audit']>,
  { caller }: AdmittedCaller,
  body: BodyReader,
): Account {
  const { call, head, place, raw } = target
  const asked = outcomeOf(() => body.read().data)
  const { remote, requestId, token } = call
  const data = 'value' in asked ? asked.value : undefined
  const mount = place?.mount.record
  const nowMs = core.now()
  const undeclaredAt = undeclaredFrom(place, head.path)
  const of = { head, undeclaredAt, requestId, token, remote, caller, nowMs, mount, data }
  return new Account(audit, { ...of, changesNothing: changesNothing(target) }, raw)
}

/** Also a read makes something where its engine gives out leases, and where its answer is kept below a token. */
function changesNothing({ head, match, place }: Target): boolean {
  const isReading = READING.has(head.verb) && match?.path.readChanges !== true
  return isReading && place?.mount.engine.revoke === undefined && head.wrapping === undefined
}

/** Serves a request whose caller is known. Throws, or rejects, with what is wrong. */
function served(core: Core, request: Request): Promise<Answer> {
  const { admitted: caller, body, trace } = request
  const { refusal } = body
  if (refusal) throw refusal
  trace.accessor = caller.caller.accessor
  const underWay = counted(core, request)
  return caller.use ? afterUse(caller, underWay) : underWay
}

/** Also a request that was refused is a use of the token, and both are over before the caller learns anything. */
async function afterUse(caller: AdmittedCaller, underWay: Promise<Answer>): Promise<Answer> {
  const [outcome] = await Promise.allSettled([underWay, caller.use?.written])
  await finishUse(caller)
  if (outcome.status === 'rejected') throw outcome.reason
  return outcome.value
}

/** How the body is read: as far as its caller may have it read. */
function readerOf(core: Core, { admitted, canonical, head, isOpen, match, raw }: Target & Entry): BodyReader {
  const isAsked = !isOpen && !match?.path.withoutToken?.isAllowed()
  const ask = (operation: EngineVerb) =>
    admitted.decide({ ...canonical, operation, data: {}, wrapTtlSeconds: undefined })
  return new BodyReader(head.verb, raw, {
    isOfDelete: match?.path.bodyOfDelete,
    charactersMax: match?.path.bodyCharactersMax,
    isNobodys: admitted === core.nobody,
    judge: isAsked ? ask : undefined,
  })
}

/** Attempts it, and is counted where it is under way. */
async function counted(core: Core, request: Request): Promise<Answer> {
  const { call, head, place } = request
  const [leaveMount, land] = [place?.mount.activeRequests.enter(), core.inFlight.enter(head.verb, head.path, call)]
  try {
    return await attempt(core, request)
  } finally {
    leaveMount?.()
    land()
  }
}

async function attempt(core: Core, request: Request): Promise<Answer> {
  const { head, match, place, raw } = request
  const body = request.body.read()
  if (head.verb === 'help' && place)
    return answerOf(helpOf(place, match?.path), { verb: 'read', requestId: request.call.requestId })
  const input = match
    ? readFields(match.path.fields, { data: body.data, params: match.params }, fieldFault(match.path, head.verb))
    : {}
  const engineCall = place && new RequestCall(core, request, place, body)
  const ask = (): Asked => {
    const asked = verbOf(head.verb, input, match?.path, engineCall)
    return { verb: asked, grant: grantOf(request, asked, body) }
  }
  const first = ask()
  const { grant, verb } = first.grant.mfaMethods?.length ? await withSecondFactor(core, request, first, ask) : first
  if (!place || !engineCall) throw new Rejection(404, `no handler for route "${head.path}". route entry not found.`)
  if (!match) throw new Rejection(404, oneError('unsupported path'))
  if (!grant.sudo && needsSudo(match.path, verb)) throw denied()
  const handler = match.path.handlers[verb]
  if (!handler) throw new Rejection(405, match.path.whileSealed ? [] : oneError('unsupported operation'))
  if (head.wrapping) ResponseWrapping.check(head.wrapping.ttlSeconds)
  engineCall.isGranted(verb, grant)
  const outcome = handler(input, engineCall)
  // No `await` where nothing is waited for: between a handler's reads and its commit nobody else may come in.
  const reply = outcome instanceof Promise ? await outcome : outcome
  if (reply?.stream) {
    if (head.wrapping) throw unwrappable()
    const check = () => checkAgain(core, request, verb, body)
    return streamedAnswer(reply.stream, { check, hops: request.call.hops, raw })
  }
  if (isSpecial(reply, head)) {
    const warnings = (shown: Reply | undefined) => warningsOf(match, body, shown)
    return settled(core, { ...request, place, warnings, call: engineCall, grant }, reply)
  }
  if (reply?.batch) await place.mount.storage.commit(reply.batch)
  const isNarrow = grant.keeps !== undefined || grant.limit !== undefined
  const shown = reply && isNarrow ? await runSliced(narrowed(reply, grant), engineCall) : reply
  request.trace.reply = shown
  const { requestId } = request.call
  return answerOf(shown, { verb: head.verb, requestId }, warningsOf(match, body, shown))
}

interface Asked {
  readonly verb: EngineVerb
  readonly grant: Grant
}

/** Takes the codes that policies ask for, then asks again: what is there, and the policies, may have changed meanwhile. */
async function withSecondFactor(core: Core, request: Request, { grant }: Asked, ask: () => Asked): Promise<Asked> {
  const { mfaMethods: methods = [] } = grant
  await stepUp(core.mfa, request.admitted.caller, methods, request.head.mfa)
  const again = ask()
  if (again.grant.mfaMethods?.some((name) => !methods.includes(name))) throw denied()
  return again
}

/** Throws a Rejection where a request that was let in would not be let in again. */
function checkAgain(core: Core, request: Request, verb: EngineVerb, body: RequestBody): void {
  if (!core.isActive) throw sealed()
  requireUnfenced(core, request.match?.path)
  if (!request.admitted.isValid()) throw new Rejection(403, 'permission denied')
  grantOf(request, verb, body)
}

/** Where it is known before the engine is asked whether something is there, the field's text stands alone. */
function fieldFault({ exists }: Path, verb: Verb): (name: string, why: string) => Rejection {
  const before = exists && verb === 'write' ? '' : 'Field validation failed: '
  return (name, why) => new Rejection(400, `${before}error converting input for field "${name}": ${why}`)
}

function verbOf(verb: Verb, input: object, path: Path | undefined, call: EngineCall | undefined): EngineVerb {
  if (verb !== 'write') return verb === 'help' ? 'read' : verb
  const isThere = call && path?.exists?.(input, call)
  return isThere === false ? 'create' : 'update'
}

/** Stock clients show these to their users, so a misspelt parameter is noticed. */
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
