/**
 * Change feed of a KV mount by long polling.
 *
 * Long polls, unlike a stream, pass proxies that buffer responses, servers that forward requests, and restarts. The cursor advances
 * only after the consumer has processed the whole response, and failed requests are retried, so no change is lost or repeated. A
 * response with a client error (4xx except 408 and 429) ends the feed with its text.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../platform/errors.ts'
import type { CommandIo } from '../../framework/define-command.ts'
import { AgentRefusal } from '../../client/http-client.ts'
import { type CoreAccess, requireResponse } from '../../core/core-access.ts'

/** Below the usual timeout of proxies. */
const POLL_MS = 25_000
/** Limit for the response after the poll interval. */
const RESPONSE_GRACE_MS = 10_000
const RETRY_MIN_MS = 100
const RETRY_MAX_MS = 2000

/** The changes in one response. */
export interface ChangeBatch {
  readonly events: readonly unknown[]
  /** Position after these changes. */
  readonly cursor: string
  /** The server no longer has the changes between the cursor and the present. */
  readonly isReset: boolean
}

export interface PollOptions {
  readonly core: CoreAccess
  /** API path of the watch, below `/v1/`. */
  readonly path: string
  readonly io: CommandIo
  /** Aborting it ends the feed without an error. */
  readonly signal: AbortSignal
}

/** The cursor of the present. Throws CommandError. */
export async function currentCursor({ core, path, signal }: Omit<PollOptions, 'io'>): Promise<string> {
  const { fields } = await requireResponse(core, { path, signal })
  return fields.under('data').text('cursor')
}

/** Ends when the signal aborts, or after `idleMs` without a change. Throws CommandError. */
export async function* changesFrom(
  start: string,
  idleMs: number | undefined,
  options: PollOptions,
): AsyncGenerator<ChangeBatch> {
  let cursor = start
  for (let sinceMs = performance.now(); ; ) {
    const leftMs = idleMs === undefined ? POLL_MS : Math.max(0, sinceMs + idleMs - performance.now())
    const answer = await pollUntilAnswered(cursor, Math.min(leftMs, POLL_MS), options)
    if (!answer) return
    if (answer.events.length > 0 || answer.isReset) {
      yield answer
      sinceMs = performance.now()
    } else if (idleMs !== undefined && performance.now() - sinceMs >= idleMs) return
    cursor = answer.cursor
  }
}

/** Retries until the server answers. Undefined when the signal aborts. */
async function pollUntilAnswered(
  cursor: string,
  waitMs: number,
  options: PollOptions,
): Promise<ChangeBatch | undefined> {
  const { core, io, signal } = options
  let isBroken = false
  for (let pauseMs = RETRY_MIN_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, RETRY_MAX_MS)) {
    try {
      const changes = await poll(cursor, waitMs, options)
      if (isBroken) io.err('outpost: resumed\n')
      return changes
    } catch (error) {
      if (signal.aborted) break
      if (error instanceof AgentRefusal && error.isFinal) throw error
      const reason = messageOf(error)
      if (!isBroken) io.err(`outpost: connection to ${core.target.url.origin} lost (${reason}), resuming\n`)
      isBroken = true
    }
    await delay(pauseMs, undefined, { signal }).catch(() => undefined)
  }
  return undefined
}

async function poll(cursor: string, waitMs: number, { core, path, signal }: PollOptions): Promise<ChangeBatch> {
  const late = AbortSignal.timeout(waitMs + RESPONSE_GRACE_MS)
  const query = { cursor, wait: `${Math.ceil(waitMs / 1000)}s` }
  const { fields } = await requireResponse(core, { path, query, signal: AbortSignal.any([signal, late]) })
  const data = fields.under('data')
  const events = data.value('events')
  return {
    events: Array.isArray(events) ? (events as unknown[]) : [],
    cursor: data.text('cursor'),
    isReset: data.boolean('reset'),
  }
}
