/**
 * The catalogue of everything that can go wrong in front of a caller.
 *
 * Two families, and only two. A *refusal* is the caller's fault: its status and message are shown as they are, so the
 * message must say what to do and must never hold a secret, a host path or an engine's own text. A *fault* is ours: the
 * caller sees "internal error" and the request ID, the detail goes to the log.
 *
 * Errors are told apart by `code`, never by their text, on every transport.
 */

/** Status of each refusal. The code is what crosses the wire between processes; the status is what HTTP shows. */
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
  /** The form of answer that was asked for is switched off. */
  not_offered: 415,
  range_not_satisfiable: 416,
  expectation_failed: 417,
  upgrade_required: 426,
  prohibited: 403,
  too_many: 429,
  /** The host's file system refused; the text is safe to show and tells the operator what to mend. */
  host_error: 500,
  not_implemented: 501,
  unavailable: 503,
  /** The secrets core is sealed, so no token of it can be judged. */
  sealed: 503,
  /** Another process was asked and did not answer. */
  no_answer: 504,
  /** The disk is full; the text names the directory, for whoever is to free space there. */
  insufficient_storage: 507,
} as const

export type RefusalCode = keyof typeof REFUSAL_STATUS

/** The caller asked for something it cannot have. `message` is shown to the caller verbatim. */
export class Refusal extends Error {
  override readonly name: string = 'Refusal'
  readonly code: RefusalCode
  readonly status: number
  /** Extra response headers, for example `Allow` or `Retry-After`. */
  readonly headers: Readonly<Record<string, string>>

  /** `status` only where it is not that of the code. */
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

  /** What an answer that lists its errors shows. */
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

/** The code under which a refusal that has a status of its own travels. */
export function codeOfStatus(status: number): RefusalCode {
  return CODE_OF_STATUS.get(status) ?? (status < 500 ? 'invalid_request' : 'unavailable')
}

/** What stock clients know a sealed server by. */
export const SEALED = 'Vault is sealed'

/** For what needs the secrets core while that is sealed, or was sealed meanwhile. */
export function sealed(): Refusal {
  return new Refusal('sealed', SEALED)
}

/** Says, in lower case, what became of the token of a request that was refused. */
export const TOKEN_HEADER = 'x-outpost-token'
export const UNKNOWN_TOKEN = 'unknown'

/** For a token that is not known, or is no longer. Its holder can tell that from a token that may not do something. */
export function unknownToken(): Refusal {
  return new Refusal('permission_denied', 'Permission denied', { 'X-Outpost-Token': UNKNOWN_TOKEN })
}

/** Something of ours failed. `message` is for the log; the caller is told only that it happened. */
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
