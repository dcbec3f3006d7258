/**
 * From what was read to what is sent: bytes as they are, or frames, with cursors where the caller asked for them.
 */
import {
  type CursorAt,
  cursorFrame,
  type FileEvent,
  FRAME_DATA_BYTES_MAX,
  FrameLabel,
  framesBytesMax,
  HEARTBEAT,
} from '../../../platform/frame.ts'
import { BufferLease } from '../../files/buffers.ts'
import { cursorCharsMax, encodeCursor, type FileMark, moveMark } from '../locate/resume-cursor.ts'
import type { DataStep, StreamSource } from '../follow/stream-source.ts'

/** `,"Cursor":""` */
const CURSOR_KEY_BYTES = 12
/** Room for what surrounds the base64 of a frame: a path of 4 KiB may grow sixfold when it is escaped. */
const LINES_LABEL_BYTES_MAX = 32_768

/** A chunk of no bytes; whoever asks for the one behind it has written all before it. */
export const NOTHING = Buffer.alloc(0)

/** Which file bytes are of: its path in frames, its mark in cursors. */
interface FrameOrigin {
  readonly path: string
  readonly mark: FileMark
}

/** Bytes on the wire for one stream: framed or plain. */
export class StreamEncoder {
  readonly lease: BufferLease
  readonly framed: boolean
  readonly #scope: number | undefined
  #label = new FrameLabel('')
  #mark: FileMark | undefined
  #source: StreamSource = { marks: () => [] }

  /** With a `scope`, frames carry cursors of it. */
  constructor(options: { framed: boolean; scope?: number | undefined }) {
    this.framed = options.framed
    this.#scope = options.framed ? options.scope : undefined
    this.lease = new BufferLease({ framed: options.framed })
  }

  /** What the bytes come from, from now on. */
  begin(source: StreamSource): void {
    this.#source = source
  }

  get labelBytes(): number {
    return this.framed ? this.#label.bytes + this.#cursorBytesMax : 0
  }

  get #cursorBytesMax(): number {
    return this.#scope === undefined ? 0 : CURSOR_KEY_BYTES + cursorCharsMax(this.#source.marks().length)
  }

  /** The cursor of where the source's marks stand. */
  cursor(scope: number): string {
    return encodeCursor(scope, this.#source.marks())
  }

  /**
   * A sign of life; no bytes when plain. Once it has been taken (the caller asked for the chunk behind it), every chunk
   * before it is written, so the buffers can go back.
   */
  get heartbeat(): Buffer {
    return this.framed ? HEARTBEAT : NOTHING
  }

  /** A sign of life that tells where the marks stand, when frames carry cursors. */
  positionFrame(): Buffer {
    return this.#scope === undefined ? this.heartbeat : cursorFrame(this.cursor(this.#scope))
  }

  event(event: FileEvent, offset: number, origin: FrameOrigin): Buffer {
    this.#setFile(origin)
    return this.framed ? this.#label.eventFrame(event, offset) : NOTHING
  }

  /** Bytes for a step that carries data. */
  step(step: DataStep, origin: FrameOrigin): Buffer {
    if (step.kind === 'private') return this.data(step.data, step.start, origin)
    this.#setFile(origin)
    if (this.#scope === undefined) return this.framed ? step.chunk.frame(this.#label) : step.chunk.data
    // Frames that carry cursors are each follower's own; so are their buffers.
    this.lease.advance(0)
    return this.data(step.chunk.data, step.chunk.start, origin)
  }

  /**
   * Bytes for data that starts at the offset `start` of its file. When it lies in the lease's read buffer the lease has
   * been told so already (`took`).
   */
  data(data: Buffer, start: number, origin: FrameOrigin): Buffer {
    this.#setFile(origin)
    if (!this.framed) return data
    let target = this.lease.framesBuffer()
    const cursorBytes = Math.ceil(data.length / FRAME_DATA_BYTES_MAX) * this.#cursorBytesMax
    const most = framesBytesMax(data.length, this.#label) + cursorBytes
    if (most > target.length) target = Buffer.allocUnsafeSlow(most)
    const cursorAt = this.#scope === undefined ? undefined : this.#cursorAt
    return target.subarray(0, this.#label.encodeFrames(data, 0, data.length, start, target, 0, cursorAt))
  }

  /** Room that `lines` needs for so many bytes. */
  linesBytesMax(bytes: number): number {
    return this.framed ? Math.ceil(bytes / 3) * 4 + 4 + LINES_LABEL_BYTES_MAX + this.#cursorBytesMax : bytes
  }

  /**
   * Whole lines, at most a frame of them, the last of which ends at the offset `end`; the marks stand there already.
   * Written into `target`, so that they stay when the lines do not.
   */
  lines(data: Buffer, end: number, origin: FrameOrigin, target: Buffer): Buffer {
    this.#setFile(origin)
    if (!this.framed) return target.subarray(0, data.copy(target))
    const scope = this.#scope
    const cursorAt = scope === undefined ? undefined : () => this.cursor(scope)
    const start = end - data.length
    return target.subarray(0, this.#label.encodeFrames(data, 0, data.length, start, target, 0, cursorAt))
  }

  readonly #cursorAt: CursorAt = (data, end, endOffset) => {
    if (this.#mark) moveMark(this.#mark, data, end, endOffset)
    return this.cursor(this.#scope ?? 0)
  }

  /** From now on, frames name this file. */
  #setFile({ path, mark }: FrameOrigin): void {
    if (this.#label.file !== path) this.#label = new FrameLabel(path)
    this.#mark = mark
  }
}
