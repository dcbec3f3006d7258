/**
 * The one mapper from anything thrown to an answer. A refusal shows its status and text; everything else is a fault:
 * 500, "internal error" and the request ID, with the detail in the log only.
 */
import { Refusal } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'

export interface ErrorAnswer {
  readonly status: number
  /** What went wrong, in plain words. */
  readonly text: string
  readonly contentType: string
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

export function errorAnswer(
  error: unknown,
  context: { format: 'plain' | 'errors'; requestId: string; operation: string; logger: Logger },
): ErrorAnswer {
  const refusal = error instanceof Refusal ? error : undefined
  if (!refusal) logFault(error, context)
  const text = refusal?.message ?? `internal error, request ${context.requestId}`
  const plain = context.format === 'plain'
  return {
    status: refusal?.status ?? 500,
    text,
    contentType: plain ? 'text/plain; charset=utf-8' : 'application/json',
    body: plain ? text : JSON.stringify({ errors: text === '' ? [] : [text] }),
    headers: refusal?.headers ?? {},
  }
}

/** Writes a fault with its causes. Stacks say where, messages what; neither may hold input (platform/errors.ts). */
export function logFault(error: unknown, context: { requestId: string; operation: string; logger: Logger }): void {
  const parts: string[] = []
  for (let cause = error; cause instanceof Error && parts.length < 5; cause = cause.cause) {
    parts.push(cause.stack ?? cause.message)
  }
  context.logger.error('request failed', {
    operation: context.operation,
    request_id: context.requestId,
    error: parts.length > 0 ? parts.join('\ncaused by ') : String(error),
  })
}
