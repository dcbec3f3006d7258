/** Records one request: the line of the request and the line of its response. */
import type { Caller, EngineVerb, Reply } from '../../engines/framework/engine.ts'
import { isObject } from '../../engines/framework/fields.ts'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { JsonText } from '../../platform/operation.ts'
import type { RestoreOriginNote } from '../../storage/seal/restore-origin.ts'
import type { RawInput } from '../../platform/schema.ts'
import { withoutCodes } from '../mfa/mfa-header.ts'
import type { MountRecord } from '../mounts/mount-record.ts'
import type { AuditedHeaders, AuditTrail } from './audit.ts'
import type { AuditedAnswer, AuditedMount, AuditedRequest } from './audit-record.ts'

const MFA_HEADER = 'x-vault-mfa'

/** A request before it is executed. */
export interface AuditContext {
  readonly head: {
    readonly verb: EngineVerb | 'write' | 'help'
    readonly path: string
    readonly wrapping: { readonly ttlSeconds: number } | undefined
  }
  /** Index in the path of the part that no endpoint declares. */
  readonly undeclaredAt?: number | undefined
  readonly requestId: string
  readonly token: string | undefined
  readonly remote: string | undefined
  readonly caller: Caller
  readonly nowMs: number
  /** Absent if the path belongs to no mount. */
  readonly mount: MountRecord | undefined
  /** The body or the query; undefined if it cannot be parsed. */
  readonly data: Readonly<Record<string, unknown>> | undefined
  /** The request changes nothing, so it may be executed before its line is recorded, but not answered. */
  readonly isReadOnly: boolean
}

export class RequestAudit {
  readonly #trail: AuditTrail
  readonly #request: AuditedRequest
  readonly #isReadOnly: boolean
  #recorded: Promise<void> | undefined

  constructor(trail: AuditTrail, context: AuditContext, raw: RawInput) {
    this.#trail = trail
    this.#isReadOnly = context.isReadOnly
    const { caller, data, head, mount, nowMs, remote, requestId, token, undeclaredAt } = context
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
   * Records the request. Resolves when the request may be executed: immediately for a read, because its answer waits for both
   * lines. Rejects with a Fault if no device records it.
   */
  async recordRequest(): Promise<void> {
    this.#trail.enter()
    this.#recorded = this.#trail.request(this.#request)
    if (!this.#isReadOnly) return this.#recorded
    // `recordReply` or `recordError` awaits it.
    this.#recorded.catch(() => undefined)
  }

  /** Records the response. Resolves when the answer may be sent. Rejects with a Fault if no device records it. */
  async recordReply(reply: Reply | undefined, wrapped?: Readonly<object>): Promise<void> {
    await this.#recordResponse({ ...answerOf(reply), wrapping: wrapped })
  }

  /** As `recordReply`, for a request that was refused or has failed. */
  async recordError(error: unknown): Promise<void> {
    await this.#recordResponse({ error: textOf(error) })
  }

  async #recordResponse(answer: AuditedAnswer): Promise<void> {
    await Promise.all([this.#recorded, this.#trail.response(this.#request, answer)])
  }

  /** Must be called when the request has ended. */
  close(): void {
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
  return isObject(value) ? value : undefined
}

/** The error as in the answer. The error of an internal fault is not recorded. */
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
    plainRequestFields: config.auditNonHmacRequestKeys ?? [],
    plainResponseFields: config.auditNonHmacResponseKeys ?? [],
  }
}

function headersOf(raw: RawInput, audited: AuditedHeaders): AuditedRequest['headers'] {
  const names = Object.keys(audited)
  if (names.length === 0) return undefined
  const found: Record<string, { value: string; isHashed: boolean }> = {}
  for (const name of names) {
    const value = raw.headers[name.replaceAll('-', '_')]
    if (value === undefined) continue
    // There are few possible codes, so even their hash would reveal them.
    const shown = name === MFA_HEADER ? withoutCodes(value) : value
    found[name] = { value: shown, isHashed: audited[name]?.hmac === true }
  }
  return Object.keys(found).length > 0 ? found : undefined
}

export interface OriginRecord {
  readonly note: RestoreOriginNote
  readonly trail: AuditTrail
  readonly anonymous: Caller
  readonly logger: Logger
}

/** Path of the request that restores a snapshot into an uninitialized server */
const SNAPSHOT_NEW = 'sys/storage/snapshot-new'

/**
 * Records the restore of a snapshot into an uninitialized server. At that time no audit device was enabled, so the devices of the
 * snapshot record it when the core is first activated. A crash before the note is removed records it twice. Never rejects: if
 * recording fails, the next activation tries again.
 */
export async function recordOrigin({ anonymous, logger, note, trail }: OriginRecord): Promise<void> {
  try {
    const origin = note.read()
    if (!origin) return
    if (trail.isOn) {
      const { atMs, remote, requestId } = origin
      const head = { verb: 'update', path: SNAPSHOT_NEW, wrapping: undefined } as const
      const from = { requestId, token: undefined, remote: remote === '' ? undefined : remote, caller: anonymous }
      const context = { head, ...from, nowMs: atMs, mount: undefined, data: undefined, isReadOnly: false }
      await recordBoth(new RequestAudit(trail, context, { params: {}, query: [], headers: {}, body: undefined }))
    }
    await note.remove()
  } catch (error) {
    logger.warn('recording the restored snapshot in the audit files failed, will retry at the next start', {
      error: messageOf(error),
    })
  }
}

async function recordBoth(requestAudit: RequestAudit): Promise<void> {
  try {
    await requestAudit.recordRequest()
    await requestAudit.recordReply(undefined)
  } finally {
    requestAudit.close()
  }
}
