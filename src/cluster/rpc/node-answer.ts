/**
 * What a node may say to a caller in a server's name. A node is not trusted like a server: what it answers is judged before
 * it becomes an HTTP answer from the server's own address. It cannot set a cookie, permit other origins, say how long the
 * message is, or have a browser run what it sends.
 */
import type { AnswerMessage } from './wire.ts'

/** Headers that operations of nodes use, in lower case. */
const HEADERS: ReadonlySet<string> = new Set([
  'accept-ranges',
  'access-control-expose-headers',
  'content-range',
  'content-security-policy',
  'retry-after',
  'x-content-type-options',
  'x-outpost-cursor',
  'x-outpost-event',
  'x-xss-protection',
])
const TEXT = 'text/plain; charset=utf-8'
/** Types that a browser may run or take apart into something that it runs. */
const ACTIVE = /html|xml|svg|script|multipart|message\//i
const MEDIA_TYPE = /^[\w.+-]+\/[\w.+-]+(; ?[\w-]+=[\w.-]+)*$/
/** Visible ASCII and spaces: anything else is no header, and would end the answer with an error. */
const HEADER_VALUE = /^[\x20-\x7e]*$/

/** The answer without what is not the node's to say; undefined for what only a server says. */
export function answerOfNode(answer: AnswerMessage): AnswerMessage | undefined {
  if (answer.kind === 'whole' || answer.kind === 'sent_whole') return undefined
  if (answer.kind === 'head') return { ...answer, ...safeType(answer.contentType), ...safeHeaders(answer.headers) }
  if (answer.kind === 'value' || answer.kind === 'sent_value') return { ...answer, ...safeHeaders(answer.headers) }
  if (answer.kind === 'refusal') return { ...answer, headers: safeHeaders(answer.headers).headers ?? {} }
  return answer
}

/** Without a type, a browser would look for one in the content. */
function safeType(contentType: string | undefined): { contentType: string } {
  if (contentType === undefined) return { contentType: 'application/octet-stream' }
  return { contentType: MEDIA_TYPE.test(contentType) && !ACTIVE.test(contentType) ? contentType : TEXT }
}

function safeHeaders(headers: Readonly<Record<string, string>> | undefined): { headers?: Record<string, string> } {
  if (headers === undefined) return {}
  return { headers: Object.fromEntries(Object.entries(headers).filter(isSafe)) }
}

function isSafe([name, value]: [string, string]): boolean {
  return HEADERS.has(name.toLowerCase()) && HEADER_VALUE.test(value)
}
