/**
 * What a stream is made of, whatever it is of: a file or logs (`one-file`, `log-cursor`, `merged-logs`, `logs-once`) say
 * step by step what there is, and whoever serves the stream (`stream-serving`) asks them.
 */
import type { Mark } from '../locate/cursor-code.ts'
import type { Step } from './file-cursor.ts'

/** What a stream is made of: one file, a log of many files, or many logs. */
export interface Source {
  /** Marks of all files it stands in, for a cursor; their offsets are moved by whoever sends the bytes. */
  marks(): readonly Mark[]
}

/** What has happened to the place of a cursor since it was given out: the stream begins elsewhere. */
export type Notice = 'deleted' | 'truncated'

/** What opening has found: the source, and what its caller is told before the first byte. */
export interface Opened<S extends Source> {
  readonly source: S
  readonly notice: Notice | undefined
}

/** A step that carries data. */
export type DataStep = Extract<Step, { kind: 'shared' | 'own' }>

/** A step that says what happened to a file. */
export type EventStep = Extract<Step, { kind: 'truncated' }> | { readonly kind: 'deleted'; readonly offset: number }

/** A step of a source, the path that its frames name, and the mark of the file it comes from. */
export interface SourceStep {
  readonly step: Step | EventStep | { readonly kind: 'over' }
  readonly path: string
  readonly mark: Mark
}

export interface SourceData extends SourceStep {
  readonly step: DataStep
}

export type FollowedKind = 'log' | 'file'

/** What can be followed. */
export interface Followed extends Source {
  readonly kind: FollowedKind
  /** Bytes of the file it is in that it has not been given, as of the last look at that file. */
  readonly lagBytes: number
  /** The next thing; `end` when there is nothing for now, `over` when nothing will ever come. Throws to break the stream. */
  step(labelBytes: number): Promise<SourceStep>
  /** Sleeps until there is news or the monotonic time has come. */
  rest(beatAtMs: number): Promise<void>
  wake(): void
  /** Looks once more; true when everything that was written up to this moment has been given. */
  drained(): boolean
  release(): void
}

/** What is read once: to the end that it has when it gets there. */
export interface Once extends Source {
  steps(labelBytes: () => number): AsyncIterable<SourceStep>
  /** Lets go of what is open, whether `steps` was begun or not. */
  release(): void
}
