/**
 * Makes the status, headers and body of an answer from a handler's reply or from an error, and the text of `?help=1`. The
 * members of the envelope and their order are Vault's, because stock clients and scripts depend on them.
 */
import { isOutOfSpace, isTooLarge, isStoreUnavailable } from '../../storage/barrier/barrier.ts'
import { type Path, Rejection, type RejectionMembers, type Reply } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import { JsonText, StreamedAnswer, WholeAnswer } from '../../platform/operation.ts'
import { AuditFault } from '../audit/audit.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'
import type { Verb } from './parse-request.ts'

export type RequestAnswer = WholeAnswer | StreamedAnswer

/** The headers of every answer. Caches must not store secrets, and a browser that has used TLS must keep using it. */
export const HEADERS: Readonly<Record<string, string>> = Object.freeze({
  'Content-Type': 'application/json',
  'Cache-Control': 'no-store',
  'Strict-Transport-Security': 'max-age=31536000; includeSubDomains',
})

function jsonOf(value: unknown): string {
  return value instanceof JsonText ? value.text : JSON.stringify(value)
}

const ESCAPED: Readonly<Record<string, string>> = {
  '<': '\\u003c',
  '>': '\\u003e',
  '&': '\\u0026',
  '\u2028': '\\u2028',
  '\u2029': '\\u2029',
}

/** Escapes the characters that Go's JSON encoder escapes, because HTML or old JavaScript could interpret them. */
function escaped(json: string): string {
  return /[<>&\u2028\u2029]/.test(json) ? json.replaceAll(/[<>&\u2028\u2029]/g, (each) => ESCAPED[each] ?? '') : json
}

function answer(status: number, body: string | undefined, headers = HEADERS): WholeAnswer {
  return new WholeAnswer(status, headers, body === undefined ? undefined : escaped(body))
}

/** The envelope around a reply. `requestId` is that of the access log and of the audit lines. */
function envelope(reply: Reply, requestId: string): string {
  const { auth, data, leased, leaseSeconds = leased?.seconds ?? 0, warnings } = reply
  const dataText = data === undefined || data === null ? 'null' : jsonOf(data)
  const warningText = warnings && warnings.length > 0 ? JSON.stringify(warnings) : 'null'
  const lease = `"lease_id":${JSON.stringify(leased?.id ?? '')},"renewable":${leased?.renewable ?? false},"lease_duration":${leaseSeconds}`
  const head = `{"request_id":${JSON.stringify(requestId)},${lease},"data":${dataText}`
  const tail = `,"wrap_info":null,"warnings":${warningText},"auth":${auth ? JSON.stringify(auth) : 'null'}`
  const isFlattened = reply.flattened && data && !(data instanceof JsonText)
  return `${head}${tail}${isFlattened ? flattenedMembers(data) : ''}}\n`
}

/** The members of `data` at the top level. Members of the envelope take precedence. */
function flattenedMembers(data: Readonly<Record<string, unknown>>): string {
  const members = Object.entries(data).filter(([name, value]) => value !== undefined && !ENVELOPE.has(name))
  return members.map(([name, value]) => `,${JSON.stringify(name)}:${JSON.stringify(value)}`).join('')
}

const ENVELOPE = new Set([
  'request_id',
  'lease_id',
  'renewable',
  'lease_duration',
  'data',
  'wrap_info',
  'warnings',
  'auth',
])

/** The envelope of a wrapped answer. */
function wrappedEnvelope(info: object, warnings: readonly string[]): string {
  const warningText = warnings.length > 0 ? JSON.stringify(warnings) : 'null'
  const head = '{"request_id":"","lease_id":"","renewable":false,"lease_duration":0,"data":null'
  return `${head},"wrap_info":${JSON.stringify(info)},"warnings":${warningText},"auth":null}\n`
}

/** The part of a request that its answer depends on. */
export interface AnswerContext {
  readonly verb: Verb
  readonly requestId: string
}

export function answerOf(
  reply: Reply | undefined,
  { requestId, verb }: AnswerContext,
  warnings: readonly string[] = [],
): WholeAnswer {
  const headers = reply?.headers ? { ...HEADERS, ...reply.headers } : HEADERS
  if (reply?.bare !== undefined) return answer(reply.status ?? 200, `${jsonOf(reply.bare)}\n`, headers)
  if (reply?.text) return new WholeAnswer(200, { ...headers, 'Content-Type': reply.text.contentType }, reply.text.body)
  if (reply?.wrapped) return answer(200, wrappedEnvelope(reply.wrapped, reply.warnings ?? []), headers)
  const isBare =
    !reply || (reply.data === undefined && reply.auth === undefined && !reply.leased && !reply.warnings?.length)
  if (isBare) {
    if (reply?.status !== undefined) return answer(reply.status, undefined, headers)
    return verb === 'read' || verb === 'list' || verb === 'scan' ? notFound() : answer(204, undefined, headers)
  }
  if (verb === 'list' && hasNoKeys(reply)) return notFound()
  const all = [...(reply.warnings ?? []), ...warnings]
  return answer(reply.status ?? 200, envelope(all.length > 0 ? { ...reply, warnings: all } : reply, requestId), headers)
}

/** A list without keys and without warnings is answered with 404. */
function hasNoKeys({ data, warnings }: Reply): boolean {
  if (data instanceof JsonText || warnings?.length) return false
  const keys = data?.['keys']
  return (keys === undefined || (Array.isArray(keys) && keys.length === 0)) && Object.keys(data ?? {}).length <= 1
}

function notFound(): WholeAnswer {
  return errorAnswer(404, [])
}

function errorAnswer(status: number, errors: readonly string[], members: RejectionMembers = {}) {
  return answer(status, `${JSON.stringify({ errors, ...members })}\n`)
}

/** The answer to an error that the caller caused or can handle; undefined for an internal fault. */
export function rejectionAnswer(error: unknown): WholeAnswer | undefined {
  if (isStoreUnavailable(error)) return errorAnswer(503, [error.message])
  if (isOutOfSpace(error)) return errorAnswer(507, [error.message])
  if (error instanceof AuditFault) return errorAnswer(500, [error.message])
  if (isTooLarge(error)) return errorAnswer(413, [`${error.message}: split the change into several requests`])
  if (error instanceof Refusal) {
    const refused = errorAnswer(error.status, error.texts, error instanceof Rejection ? error.members : {})
    if (Object.keys(error.headers).length === 0) return refused
    return new WholeAnswer(refused.status, { ...refused.headers, ...error.headers }, refused.body)
  }
  return undefined
}

/** Adds the token's accessor, for the access log, and more headers. */
export function withAccessor(
  original: RequestAnswer,
  accessor: string,
  more?: Readonly<Record<string, string>>,
): RequestAnswer {
  const headers = more ? { ...original.headers, ...more } : original.headers
  if (original instanceof StreamedAnswer) return new StreamedAnswer(headers, original.chunks, accessor)
  return new WholeAnswer(original.status, headers, original.body, accessor)
}

/** Answers `?help=1` with the declaration of a path, or with those of all paths of a mount. */
export function helpReply({ mount }: ResolvedPath, path: Path | undefined): Reply {
  return {
    bare: { help: path ? pathHelp(path) : mountHelp(mount.engine.description, mount.paths.paths), see_also: null },
  }
}

function pathHelp(path: Path): string {
  const fields = Object.entries(path.fields).map(
    ([name, { description, kind }]) => `    ${name} (${kind})\n        ${description}`,
  )
  const parts = [`${path.pattern}\n    ${path.summary}`, `Operations: ${Object.keys(path.handlers).join(', ')}`]
  return `${[...parts, ...(fields.length > 0 ? ['Parameters:', ...fields] : [])].join('\n\n')}\n`
}

function mountHelp(description: string, paths: readonly Path[]): string {
  const lines = paths.map(({ pattern, summary }) => `    ${pattern}\n        ${summary}`)
  return `${[description, 'Paths:', ...lines].join('\n\n')}\n`
}
