/** The position of a stream: the cursors with which a client resumes after the frames that it has processed. */
import type { AgentRequest, Query } from '../client/http-client.ts'
import type { Frame } from './frame-reader.ts'

export type ResumeRequest = Pick<AgentRequest, 'method' | 'query' | 'body'>

export interface StreamCursors {
  /** False before the first cursor, and with a server without cursors. */
  readonly hasPosition: boolean
  /** True if a server without cursors can resume by byte count. */
  readonly isOneLog: boolean
  record(frame: Frame): void
  /** The request that resumes. Requires a position. */
  resume(query: Query): ResumeRequest
}

/** One log, or the merged logs of one allocation. */
export class AllocationCursor implements StreamCursors {
  readonly isOneLog = true
  #cursor: string | undefined

  get hasPosition(): boolean {
    return this.#cursor !== undefined
  }

  record({ cursor }: Frame): void {
    if (cursor !== undefined) this.#cursor = cursor
  }

  resume(query: Query): ResumeRequest {
    return { query: { ...withoutStart(query), cursor: this.#cursor } }
  }
}

/** The logs of a job: one cursor for each allocation. */
export class JobCursors implements StreamCursors {
  readonly isOneLog = false
  readonly #cursors = new Map<string, string>()

  get hasPosition(): boolean {
    return this.#cursors.size > 0
  }

  record({ allocationId, cursor }: Frame): void {
    if (allocationId !== undefined && cursor !== undefined) this.#cursors.set(allocationId, cursor)
  }

  /** In the body, because the head of a request is limited. */
  resume(query: Query): ResumeRequest {
    const cursors = Array.from(this.#cursors, ([allocationId, cursor]) => `${allocationId}.${cursor}`)
    return { method: 'POST', query: withoutStart(query), body: { Cursors: cursors } }
  }
}

/** A cursor replaces the parameters of the start position. */
function withoutStart(query: Query): Query {
  const { tail_lines: _lines, since: _since, ...rest } = query
  return rest
}
