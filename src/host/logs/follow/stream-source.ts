/**
 * The source of a stream: a file or logs (`single-file`, `log-cursor`, `merged-logs`, `log-reader`) deliver it step by step to
 * `stream-serving`.
 */
import type { FileMark } from '../locate/resume-cursor.ts'
import type { FileStep } from './file-cursor.ts'

/** One file, a log of several files, or several logs. */
export interface StreamSource {
  /** Marks of all current files, for a cursor. The sender of the bytes advances them. */
  marks(): readonly FileMark[]
}

/** Why a resumed stream starts at another position than that of its cursor. */
export type ResumeEvent = 'deleted' | 'truncated'

/** A source, and the event that the client gets before the first byte. */
export interface OpenedSource<S extends StreamSource> {
  readonly source: S
  readonly notice: ResumeEvent | undefined
}

/** A step that carries data. */
export type DataStep = Extract<FileStep, { kind: 'shared' | 'private' }>

/** A step that reports an event of a file. */
export type EventStep = Extract<FileStep, { kind: 'truncated' }> | { readonly kind: 'deleted'; readonly offset: number }

/** A step of a source, with the path for its frames and the mark of its file. */
export interface SourceStep {
  readonly step: FileStep | EventStep | { readonly kind: 'over' }
  readonly path: string
  readonly mark: FileMark
}

export interface SourceDataStep extends SourceStep {
  readonly step: DataStep
}

export type FollowKind = 'log' | 'file'

/** A source that can be followed. */
export interface FollowSource extends StreamSource {
  readonly kind: FollowKind
  /** Unread bytes of the current file, as of its last check. */
  readonly lagBytes: number
  /** The next step: `end` if there is none for now, `over` if there will be none. Throws to break the stream. */
  step(labelBytes: number): Promise<SourceStep>
  /** Resolves at the next change or at the monotonic time. */
  sleepUntil(wakeAtMs: number): Promise<void>
  wake(): void
  /** Checks the files; true if everything written so far has been delivered. */
  drained(): boolean
  release(): void
}

/** A source that is read once, to its current end. */
export interface FiniteSource extends StreamSource {
  steps(labelBytes: () => number): AsyncIterable<SourceStep>
  /** Closes open files, also if `steps` was not called. */
  release(): void
}
