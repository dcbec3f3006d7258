/**
 * The errors of the program.
 *
 * There are two kinds. A *refusal* is caused by the caller: status and message are shown verbatim, so the message says what to do
 * and never contains a secret, a host path or the text of a JavaScript engine. A *fault* is an internal error: the caller sees
 * "internal error" and the request ID, and the log has the detail.
 *
 * Every transport distinguishes errors by `code`, never by text.
 */

/** HTTP status of each refusal. Processes exchange the code. */
export const REFUSAL_STATUS = {
  invalid_request: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  conflict: 409,
  body_too_large: 413,
  path_too_long: 414,
  /** The requested form of answer is disabled. */
  not_offered: 415,
  range_not_satisfiable: 416,
  expectation_failed: 417,
  upgrade_required: 426,
  prohibited: 403,
  too_many: 429,
  /** The host's file system returned an error; the text is safe to show and says what to fix. */
  host_error: 500,
  not_implemented: 501,
  unavailable: 503,
  /** The secrets core is sealed, so tokens cannot be resolved. */
  sealed: 503,
  /** The server is not the active one of its cluster; nothing was done. */
  not_active: 503,
  /** No connection to the server that the call is for; nothing was sent. */
  not_connected: 503,
  /** Another process did not answer. */
  no_answer: 504,
  /** The disk is full; the text names the directory in which to free space. */
  insufficient_storage: 507,
} as const

export type RefusalCode = keyof typeof REFUSAL_STATUS

/** A request that is refused. `message` is shown to the caller verbatim. */
export class Refusal extends Error {
  override readonly name: string = 'Refusal'
  readonly code: RefusalCode
  readonly status: number
  /** Extra response headers, for example `Allow` or `Retry-After`. */
  readonly headers: Readonly<Record<string, string>>

  /** `status` only if it differs from that of the code. */
  constructor(
    code: RefusalCode,
    message: string,
    headers: Readonly<Record<string, string>> = {},
    status: number = REFUSAL_STATUS[code],
  ) {
    super(message)
    this.code = code
    this.status = status
    this.headers = headers
  }

  /** The entries of `errors` in a JSON error answer. */
  get texts(): readonly string[] {
    return this.message === '' ? [] : [this.message]
  }
}

const CODE_OF_STATUS: ReadonlyMap<number, RefusalCode> = new Map(
  // The first code of a status is the general one.
  Object.entries(REFUSAL_STATUS)
    .toReversed()
    .map(([code, status]) => [status, code as RefusalCode]),
)

/** The code that represents a status between processes. */
export function codeOfStatus(status: number): RefusalCode {
  return CODE_OF_STATUS.get(status) ?? (status < 500 ? 'invalid_request' : 'unavailable')
}

/** A feature of a compatible system that outpost does not have. */
export interface UnsupportedFeature {
  /** Completes "not supported by outpost: …". */
  readonly feature: string
  /** Anchor of the section in docs/unsupported.md. */
  readonly section: string
}

/** Where a feature and its alternatives are documented. */
export function unsupportedLink({ section }: UnsupportedFeature): string {
  return `docs/unsupported.md#${section}`
}

/** Text of a refusal for a feature that stock clients may request. */
export function unsupportedText(unsupported: UnsupportedFeature): string {
  return `not supported by outpost: ${unsupported.feature}, see ${unsupportedLink(unsupported)}`
}

/** The text by which stock clients recognize a sealed server. */
export const SEALED = 'Vault is sealed'

/** The refusal of a request that needs the sealed secrets core. */
export function sealed(): Refusal {
  return new Refusal('sealed', SEALED)
}

/** The refusal of a server that is not the active one of its cluster. */
export function notActive(): Refusal {
  return new Refusal('not_active', 'this server is not the active one of its cluster, try again')
}

/** Header of a refusal that says why the token was not accepted; in lower case. */
export const TOKEN_HEADER = 'x-outpost-token'
export const UNKNOWN_TOKEN = 'unknown'

/** The refusal for an unknown or expired token. The header distinguishes it from a missing permission. */
export function unknownToken(): Refusal {
  return new Refusal('permission_denied', 'Permission denied', { 'X-Outpost-Token': UNKNOWN_TOKEN })
}

/** An internal error. `message` is for the log only. */
export class Fault extends Error {
  override readonly name = 'Fault'
}

/** The `errno` name of a system error (`ENOENT`, `EACCES`, ...), or undefined for anything else. */
export function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

/** True for a system error with one of these names. */
export function isErrno(error: unknown, ...names: readonly string[]): boolean {
  const name = errnoOf(error)
  return name !== undefined && names.includes(name)
}

/** The message of anything thrown, for a log line. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
