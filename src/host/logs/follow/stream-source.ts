/**
 * What a stream is made of, whatever it is of: a file or logs (`one-file`, `log-cursor`, `merged-logs`, `logs-once`) say
 * step by step what there is, and whoever serves the stream (`stream-serving`) asks them.
 */
import type { FileMark } from '../locate/resume-cursor.ts'
import type { FileStep } from './file-cursor.ts'

/** What a stream is made of: one file, a log of many files, or many logs. */
export interface StreamSource {
  /** Marks of all files it stands in, for a cursor; their offsets are moved by whoever sends the bytes. */
  marks(): readonly FileMark[]
}

/** What has happened to the place of a cursor since it was given out: the stream begins elsewhere. */
export type ResumeEvent = 'deleted' | 'truncated'

/** What opening has found: the source, and what its caller is told before the first byte. */
export interface OpenedSource<S extends StreamSource> {
  readonly source: S
  readonly notice: ResumeEvent | undefined
}

/** A step that carries data. */
export type DataStep = Extract<FileStep, { kind: 'shared' | 'private' }>

/** A step that says what happened to a file. */
export type EventStep = Extract<FileStep, { kind: 'truncated' }> | { readonly kind: 'deleted'; readonly offset: number }

/** A step of a source, the path that its frames name, and the mark of the file it comes from. */
export interface SourceStep {
  readonly step: FileStep | EventStep | { readonly kind: 'over' }
  readonly path: string
  readonly mark: FileMark
}

export interface SourceDataStep extends SourceStep {
  readonly step: DataStep
}

export type FollowKind = 'log' | 'file'

/** What can be followed. */
export interface FollowSource extends StreamSource {
  readonly kind: FollowKind
  /** Bytes of the file it is in that it has not been given, as of the last look at that file. */
  readonly lagBytes: number
  /** The next thing; `end` when there is nothing for now, `over` when nothing will ever come. Throws to break the stream. */
  step(labelBytes: number): Promise<SourceStep>
  /** Sleeps until there is news or the monotonic time has come. */
  sleepUntil(wakeAtMs: number): Promise<void>
  wake(): void
  /** Looks once more; true when everything that was written up to this moment has been given. */
  drained(): boolean
  release(): void
}

/** What is read once: to the end that it has when it gets there. */
export interface FiniteSource extends StreamSource {
  steps(labelBytes: () => number): AsyncIterable<SourceStep>
  /** Lets go of what is open, whether `steps` was begun or not. */
  release(): void
}
