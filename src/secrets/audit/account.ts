/** The account of one request: its two lines, made from what the request path knows. */
import type { Caller, EngineVerb, Reply } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import { JsonText } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import { withoutCodes } from '../mfa/mfa-header.ts'
import type { MountRecord } from '../mounts/mount-record.ts'
import type { AuditedHeaders, AuditTrail } from './audit.ts'
import type { AuditedAnswer, AuditedMount, AuditedRequest } from './audit-record.ts'

const MFA_HEADER = 'x-vault-mfa'

/** What of a request is known before it is done. */
export interface AccountOf {
  readonly head: {
    readonly verb: EngineVerb | 'write' | 'help'
    readonly path: string
    readonly wrapping: { readonly ttlSeconds: number } | undefined
  }
  /** Where the part of its path begins that no endpoint declares. */
  readonly undeclaredAt?: number | undefined
  readonly requestId: string
  readonly token: string | undefined
  readonly remote: string | undefined
  readonly caller: Caller
  readonly nowMs: number
  /** Absent where no mount is at its path. */
  readonly mount: MountRecord | undefined
  /** The body or the query; undefined where it cannot be read. */
  readonly data: Readonly<Record<string, unknown>> | undefined
  /** It only reads: what is asked need not be recorded before it is looked at, only before anything is told. */
  readonly changesNothing: boolean
}

export class Account {
  readonly #trail: AuditTrail
  readonly #request: AuditedRequest
  readonly #changesNothing: boolean
  #asked: Promise<void> | undefined

  constructor(trail: AuditTrail, of: AccountOf, raw: RawInput) {
    this.#trail = trail
    this.#changesNothing = of.changesNothing
    const { caller, data, head, mount, nowMs, remote, requestId, token, undeclaredAt } = of
    this.#request = {
      timeMs: nowMs,
      requestId,
      operation: head.verb === 'write' ? 'update' : head.verb,
      path: head.path,
      undeclaredAt,
      data,
      token,
      caller,
      remote,
      wrapTtlSeconds: head.wrapping?.ttlSeconds,
      mount: mount && mountOf(mount),
      headers: headersOf(raw, trail.headers),
    }
  }

  /**
   * Records what is asked. Resolves once it may be done: at once for what only reads, as nothing is told before both lines
   * are recorded. Rejects with a Fault where no device records it.
   */
  async begin(): Promise<void> {
    this.#trail.enter()
    this.#asked = this.#trail.request(this.#request)
    if (!this.#changesNothing) return this.#asked
    // `end` or `fail` waits for it.
    this.#asked.catch(() => undefined)
  }

  /** Records the answer; resolves once it may leave. Rejects with a Fault where no device records it. */
  async end(reply: Reply | undefined, wrapped?: Readonly<object>): Promise<void> {
    await this.#close({ ...answerOf(reply), wrapping: wrapped })
  }

  /** As `end`, of a request that was refused or has failed. */
  async fail(error: unknown): Promise<void> {
    await this.#close({ error: textOf(error) })
  }

  async #close(answer: AuditedAnswer): Promise<void> {
    await Promise.all([this.#asked, this.#trail.response(this.#request, answer)])
  }

  /** To be called when the request is over, however it ended. */
  leave(): void {
    this.#trail.leave()
  }
}

function answerOf(reply: Reply | undefined): AuditedAnswer {
  return { data: dataOf(reply), auth: reply?.auth, leaseId: reply?.leased?.id, warnings: reply?.warnings }
}

function dataOf(reply: Reply | undefined): AuditedAnswer['data'] {
  const data = reply?.data ?? reply?.bare
  if (data instanceof JsonText) return objectOf(JSON.parse(data.text))
  return objectOf(data)
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return isRecord(value) ? value : undefined
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** What the caller is told; of a fault of ours not even that. */
function textOf(error: unknown): string {
  if (error instanceof Refusal) return error.texts.join('; ') || String(error.status)
  return 'internal error'
}

function mountOf({ accessor, config, path, type }: MountRecord): AuditedMount {
  return {
    path,
    type,
    accessor,
    isAuth: path.startsWith('auth/'),
    shownInRequests: config.auditNonHmacRequestKeys ?? [],
    shownInAnswers: config.auditNonHmacResponseKeys ?? [],
  }
}

function headersOf(raw: RawInput, wanted: AuditedHeaders): AuditedRequest['headers'] {
  const names = Object.keys(wanted)
  if (names.length === 0) return undefined
  const found: Record<string, { value: string; isHashed: boolean }> = {}
  for (const name of names) {
    const value = raw.headers[name.replaceAll('-', '_')]
    if (value === undefined) continue
    // A code is not even hashed: there are few of them.
    const shown = name === MFA_HEADER ? withoutCodes(value) : value
    found[name] = { value: shown, isHashed: wanted[name]?.hmac === true }
  }
  return Object.keys(found).length > 0 ? found : undefined
}
