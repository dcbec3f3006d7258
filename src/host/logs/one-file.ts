/** A single file as what a stream is made of: read once, or followed. */
import type { ReadableFile } from '../files/alloc-files.ts'
import type { BufferLease } from '../files/buffers.ts'
import type { Mark } from './locate/cursor-code.ts'
import type { FileCursor } from './follow/file-cursor.ts'
import { OpenFile, readSpan } from '../files/read.ts'
import type { EventStep, Followed, Once, SourceStep } from './follow/stream-source.ts'

/** A file that is read, and what its bytes are labelled with. */
export interface Reading {
  readonly file: OpenFile
  readonly path: string
  readonly mark: Mark
}

/** The bytes of an open file from `start` to its end; returns where that was. */
export async function* fileSteps(
  { file, path, mark }: Reading,
  start: number,
  lease: BufferLease,
  labelBytes: number,
): AsyncGenerator<SourceStep, number> {
  let position = start
  for await (const data of readSpan(file, lease, { start, end: Number.MAX_SAFE_INTEGER, labelBytes })) {
    yield { step: { kind: 'own', data, start: position }, path, mark }
    position += data.length
  }
  return position
}

/** An open file, where to begin in it, and what is to be said first. */
export interface FileStart {
  readonly content: ReadableFile
  readonly mark: Mark
  readonly said: EventStep | undefined
}

/** One file that is read once. */
export class FileOnce implements Once {
  readonly #start: FileStart
  readonly #path: string
  readonly #lease: BufferLease
  readonly #file: OpenFile

  constructor(start: FileStart, path: string, lease: BufferLease) {
    this.#start = start
    this.#file = new OpenFile(start.content.fd)
    this.#path = path
    this.#lease = lease
  }

  marks(): Mark[] {
    return [this.#start.mark]
  }

  async *steps(labelBytes: () => number): AsyncGenerator<SourceStep> {
    const { mark, said } = this.#start
    if (said) yield { step: said, path: this.#path, mark }
    const reading = { file: this.#file, path: this.#path, mark }
    yield* fileSteps(reading, mark.offset, this.#lease, labelBytes())
  }

  release(): void {
    this.#file.close()
  }
}

/** One file as what is followed: over when it is deleted, or its name belongs to another file, and all was read. */
export class OneFile implements Followed {
  readonly kind = 'file'
  readonly #cursor: FileCursor
  readonly #path: string
  readonly #mark: Mark
  #said: EventStep | undefined
  #saidDeleted = false

  constructor(cursor: FileCursor, path: string, { mark, said }: FileStart) {
    this.#cursor = cursor
    this.#path = path
    this.#mark = mark
    this.#said = said
  }

  marks(): Mark[] {
    return [this.#mark]
  }

  get lagBytes(): number {
    return this.#cursor.lagBytes
  }

  async step(labelBytes: number): Promise<SourceStep> {
    const said = this.#said
    this.#said = undefined
    if (said) return this.#labelled(said)
    for (;;) {
      const taken = this.#cursor.step(labelBytes)
      const step = taken instanceof Promise ? await taken : taken
      if (step.kind !== 'end' || !this.#cursor.file.deleted) return this.#labelled(step)
      if (!this.#cursor.drained()) continue
      if (this.#saidDeleted) return this.#labelled({ kind: 'over' })
      this.#saidDeleted = true
      return this.#labelled({ kind: 'deleted', offset: this.#cursor.position })
    }
  }

  #labelled(step: SourceStep['step']): SourceStep {
    return { step, path: this.#path, mark: this.#mark }
  }

  drained(): boolean {
    return this.#cursor.drained()
  }

  rest(beatAtMs: number): Promise<void> {
    return this.#cursor.rest(beatAtMs)
  }

  wake(): void {
    this.#cursor.wake()
  }

  release(): void {
    this.#cursor.release()
  }
}
