/**
 * The header `X-Vault-MFA`: `METHOD:CODE`, `METHOD:passcode=CODE` or `METHOD` alone, several separated by commas or sent as
 * several headers. METHOD is the name or ID of a method. No error has a code.
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { isObject } from '../../engines/framework/fields.ts'

/** Codes by the name or ID of their method as the caller sent it; undefined for a method without a code. */
export type MfaCredentials = ReadonlyMap<string, string | undefined>

/** Methods in one request. */
const METHODS_MAX = 16
const HEADER = 'failed to parse X-Vault-MFA header'
const INVALID = `${HEADER}: invalid data in header "X-Vault-MFA"`
const PASSCODE = 'passcode='

/** Undefined without the header. Throws a Rejection (400) for a malformed header. */
export function parseMfaHeader(header: string | undefined): MfaCredentials | undefined {
  if (header === undefined) return undefined
  const codes = new Map<string, string | undefined>()
  for (const each of header.split(',')) {
    const [name, code] = pairOf(each.trim())
    if (codes.has(name)) throw new Rejection(400, `${HEADER}: found multiple passcodes for the same MFA method`)
    if (codes.size >= METHODS_MAX) throw new Rejection(400, `${HEADER}: at most ${METHODS_MAX} methods in one request`)
    codes.set(name, code)
  }
  return codes
}

function pairOf(text: string): readonly [string, string | undefined] {
  const colon = text.indexOf(':')
  if (text === '' || colon === 0) throw new Rejection(400, `${INVALID}; missing method name or ID`)
  if (colon < 0) return [text, undefined]
  const value = text.slice(colon + 1)
  const code = value.startsWith(PASSCODE) ? value.slice(PASSCODE.length) : value
  if (code === '') throw new Rejection(400, `${INVALID}; missing method value`)
  return [text.slice(0, colon), code]
}

/** The names of the methods in the header, for logs. */
export function withoutCodes(header: string): string {
  return header
    .split(',')
    .map((each) => each.split(':', 1)[0]?.trim() ?? '')
    .join(', ')
}

/**
 * Parses `mfa_payload` of `sys/mfa/validate`: a list with one code by the name or ID of its method. Throws a Rejection (400) for a
 * malformed payload.
 */
export function parseMfaPayload(payload: unknown): MfaCredentials {
  if (payload === undefined || payload === null) throw new Rejection(400, 'missing mfa payload')
  if (!isObject(payload)) throw new Rejection(400, 'invalid mfa payload')
  const names = Object.keys(payload)
  if (names.length === 0) throw new Rejection(400, 'missing mfa payload')
  if (names.length > METHODS_MAX) throw new Rejection(400, `invalid mfa payload: at most ${METHODS_MAX} methods`)
  return new Map(names.map((name) => [name, payloadCode(payload[name])]))
}

function payloadCode(value: unknown): string | undefined {
  const list: readonly unknown[] = Array.isArray(value) ? value : [value]
  if (list.length > 1) {
    throw new Rejection(400, 'invalid mfa payload: found multiple passcodes for the same MFA method')
  }
  const [code] = list
  if (code === undefined) return undefined
  if (typeof code !== 'string') throw new Rejection(400, 'invalid mfa payload: a passcode must be a string')
  const bare = code.startsWith(PASSCODE) ? code.slice(PASSCODE.length) : code
  return bare === '' ? undefined : bare
}
