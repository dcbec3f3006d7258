/**
 * Encodes the steps of a source for the client: plain bytes, or frames, with cursors if requested.
 */
import {
  type CursorAt,
  cursorFrame,
  type FileEvent,
  FRAME_DATA_BYTES_MAX,
  FrameLabel,
  framesBytesMax,
  HEARTBEAT,
} from '../../../platform/stream-frame.ts'
import { BufferLease } from '../../files/buffers.ts'
import { cursorCharsMax, encodeCursor, type FileMark, moveMark } from '../locate/resume-cursor.ts'
import type { DataStep, StreamSource } from '../follow/stream-source.ts'

/** `,"Cursor":""` */
const CURSOR_KEY_BYTES = 12
/** Space for the parts of a frame around its base64: a path of 4 KiB may grow sixfold when it is escaped. */
const LINES_LABEL_BYTES_MAX = 32_768

/** An empty chunk; when the next one is requested, all chunks before it are written. */
export const NOTHING = Buffer.alloc(0)

/** The file of a step: its path for frames, its mark for cursors. */
interface FrameOrigin {
  readonly path: string
  readonly mark: FileMark
}

/** The encoder of one stream, framed or plain. */
export class StreamEncoder {
  readonly lease: BufferLease
  readonly framed: boolean
  readonly #scope: number | undefined
  #label = new FrameLabel('')
  #mark: FileMark | undefined
  #source: StreamSource = { marks: () => [] }

  /** With a `scope`, frames have cursors of it. */
  constructor(options: { framed: boolean; scope?: number | undefined }) {
    this.framed = options.framed
    this.#scope = options.framed ? options.scope : undefined
    this.lease = new BufferLease({ framed: options.framed })
  }

  /** Sets the source of the following steps. */
  begin(source: StreamSource): void {
    this.#source = source
  }

  get labelBytes(): number {
    return this.framed ? this.#label.bytes + this.#cursorBytesMax : 0
  }

  get #cursorBytesMax(): number {
    return this.#scope === undefined ? 0 : CURSOR_KEY_BYTES + cursorCharsMax(this.#source.marks().length)
  }

  /** The cursor of the source's marks. */
  cursor(scope: number): string {
    return encodeCursor(scope, this.#source.marks())
  }

  /**
   * A heartbeat; empty for plain streams. When the chunk after it is requested, all chunks before it are written, so the
   * buffers can be returned.
   */
  get heartbeat(): Buffer {
    return this.framed ? HEARTBEAT : NOTHING
  }

  /** A heartbeat with a cursor if frames have cursors. */
  positionFrame(): Buffer {
    return this.#scope === undefined ? this.heartbeat : cursorFrame(this.cursor(this.#scope))
  }

  event(event: FileEvent, offset: number, origin: FrameOrigin): Buffer {
    this.#setFile(origin)
    return this.framed ? this.#label.eventFrame(event, offset) : NOTHING
  }

  /** Encodes a step with data. */
  step(step: DataStep, origin: FrameOrigin): Buffer {
    if (step.kind === 'private') return this.data(step.data, step.start, origin)
    this.#setFile(origin)
    if (this.#scope === undefined) return this.framed ? step.chunk.frame(this.#label) : step.chunk.data
    // Frames with cursors cannot be shared, so they need buffers of this stream.
    this.lease.advance(0)
    return this.data(step.chunk.data, step.chunk.start, origin)
  }

  /**
   * Encodes data that starts at the offset `start` of its file. For data in a read buffer of the lease, `advance` was already
   * called.
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

  /** Maximum encoded length of `lines` with this number of bytes. */
  linesBytesMax(bytes: number): number {
    return this.framed ? Math.ceil(bytes / 3) * 4 + 4 + LINES_LABEL_BYTES_MAX + this.#cursorBytesMax : bytes
  }

  /**
   * Encodes whole lines, at most one frame, of which the last ends at the offset `end`, where the marks already are. Written
   * into `target`, because the buffer of the lines is reused.
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

  /** Sets the file of the following frames. */
  #setFile({ path, mark }: FrameOrigin): void {
    if (this.#label.file !== path) this.#label = new FrameLabel(path)
    this.#mark = mark
  }
}
