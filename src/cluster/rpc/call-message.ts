/**
 * The message of a call, encoded as a list of its parts in fixed order. A list costs half as much as a map with names, for every
 * call; for the same reason it is checked by hand.
 */
import type { RawInput } from '../../platform/schema.ts'
import { isCount, isMap, isText, listOf } from '../nats/message-pack.ts'
import { type AssertionClaims, decodeClaims, encodeClaims } from '../trust/assertion.ts'

/** Longest forwarding path: caller to server to node, and one more server. */
export const HOPS_MAX = 3

const TEXT_MAX = 1 << 20
const SHORT_MAX = 8192
const BODY_MAX = 32 << 20
const QUERY_PAIRS_MAX = 256
/** A part of a subject without wildcards. */
const SUBJECT_PART = /^[\w-]{1,128}$/

export interface CallMessage {
  readonly version: number
  readonly operation: string
  readonly input: RawInput
  /** In calls to servers only. */
  readonly token?: string | undefined
  /** In calls to nodes only: what a server asserts. */
  readonly claims?: AssertionClaims | undefined
  readonly requestId: string
  readonly hops: number
  /** Client address of the request. */
  readonly remote?: string | undefined
  /** Bytes that may be sent before the first credit message. */
  readonly window: number
  /** Name of the call: the last part of the subjects of its answers and control messages. */
  readonly call: string
}

const PARTS = 13

/** In the order that `decodeCallMessage` expects. */
export function encodeCallMessage(message: CallMessage): readonly unknown[] {
  const { claims, input, remote = null, token = null } = message
  return [
    message.version,
    message.operation,
    message.requestId,
    message.call,
    message.hops,
    message.window,
    input.params,
    input.query,
    input.headers,
    input.body ?? null,
    token,
    remote,
    claims === undefined ? null : encodeClaims(claims),
  ]
}

/** Undefined for a malformed value. */
export function decodeCallMessage(value: unknown): CallMessage | undefined {
  const parts = listOf(value, PARTS)
  if (!parts) return undefined
  const [version, operation, requestId, call, hops, window, params, query, headers, body, token, remote, claims] = parts
  if (!isCount(version) || !isText(operation, SHORT_MAX) || !isText(requestId, SHORT_MAX)) return undefined
  if (typeof call !== 'string' || !SUBJECT_PART.test(call)) return undefined
  if (!isCount(hops) || hops > HOPS_MAX || !isCount(window) || window < 1) return undefined
  if (!isTextMap(params) || !areQueryPairs(query) || !isTextMap(headers)) return undefined
  if (!isTextOrNull(body, BODY_MAX) || !isTextOrNull(token, SHORT_MAX) || !isTextOrNull(remote, SHORT_MAX)) {
    return undefined
  }
  const asserted = claims === null ? undefined : decodeClaims(claims)
  if (claims !== null && !asserted) return undefined
  return {
    version,
    operation,
    requestId,
    call,
    hops,
    window,
    input: { params, query, headers, body: body ?? undefined },
    token: token ?? undefined,
    remote: remote ?? undefined,
    claims: asserted,
  }
}

function isTextOrNull(value: unknown, lengthMax: number): value is string | null {
  return value === null || isText(value, lengthMax)
}

function isTextMap(value: unknown): value is Readonly<Record<string, string>> {
  if (!isMap(value)) return false
  for (const name of Object.keys(value)) {
    if (name.length > SHORT_MAX || !isText(value[name], TEXT_MAX)) return false
  }
  return true
}

function areQueryPairs(value: unknown): value is readonly (readonly [string, string])[] {
  return Array.isArray(value) && value.length <= QUERY_PAIRS_MAX && value.every(isQueryPair)
}

function isQueryPair(value: unknown): boolean {
  const pair = listOf(value, 2)
  return pair !== undefined && isText(pair[0], SHORT_MAX) && isText(pair[1], TEXT_MAX)
}
