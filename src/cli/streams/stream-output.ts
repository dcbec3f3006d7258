/** Output of frames: raw bytes, lines with a prefix, or JSON objects. */
import { logName } from '../client/alloc-argument.ts'
import type { ByteSink } from '../framework/byte-sink.ts'
import type { Frame } from './frame-reader.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { painted, type Terminal } from '../output/terminal.ts'

/** Longer lines are split. */
const LINE_BYTES_MAX = 1024 * 1024
const NEWLINE = 10
const END_OF_LINE = Buffer.from('\n')
const COLOURS = ['cyan', 'yellow', 'green', 'magenta', 'blue'] as const

export interface StreamOutput {
  /** Returns a promise if the reader is slow: await it. */
  write(frame: Frame): Promise<void> | undefined
  /** Flushes incomplete lines; resolves when everything is written. */
  end(): Promise<void>
}

export interface Sinks {
  readonly out: ByteSink
  /** For lines of stderr; may be the same as `out`. */
  readonly err: ByteSink
}

function sinkOf(sinks: Sinks, file: string): ByteSink {
  return logName(file)?.type === 'stderr' ? sinks.err : sinks.out
}

/** Writes all bytes unchanged and at once. */
export function rawOutput(sinks: Sinks): StreamOutput {
  // Consecutive frames usually belong to the same file.
  let lastFile: string | undefined
  let last = sinks.out
  return {
    write(frame) {
      if (!frame.data) return undefined
      if (frame.file !== lastFile) {
        lastFile = frame.file
        last = sinkOf(sinks, frame.file)
      }
      return last.write(frame.data)
    },
    end: () => endAll(sinks),
  }
}

type FrameSource = Pick<Frame, 'file' | 'allocationId'>

interface LineFormatter {
  format(line: Buffer, source: FrameSource): Buffer
}

/** Complete lines, each with its task as a prefix, preceded by `nameOf` the allocation in a stream of several. */
export function prefixedOutput(
  sinks: Sinks,
  terminal: Terminal,
  nameOf: (allocationId: string) => string = (id) => id,
): StreamOutput {
  const prefixes = new Map<string, Buffer>()
  const prefixOf = ({ allocationId, file }: FrameSource) => {
    const task = logName(file)?.task ?? file
    const text = escapeLine(allocationId === undefined ? task : `${nameOf(allocationId)} ${task}`)
    let prefix = prefixes.get(text)
    if (!prefix) {
      const colour = COLOURS[prefixes.size % COLOURS.length] ?? 'cyan'
      prefix = Buffer.from(`${painted(`${text} |`, colour, terminal)} `)
      prefixes.set(text, prefix)
    }
    return prefix
  }
  return new LineOutput(sinks, { format: (line, source) => Buffer.concat([prefixOf(source), line, END_OF_LINE]) })
}

/** One JSON object per line: task, type, file, line. */
export function jsonOutput(sinks: Sinks): StreamOutput {
  return new LineOutput(
    { out: sinks.out, err: sinks.out },
    {
      format(line, { allocationId, file }) {
        const name = logName(file)
        const of = allocationId === undefined ? {} : { AllocID: allocationId }
        const label = { ...of, ...(name ? { Task: name.task, Type: name.type, File: file } : { File: file }) }
        return Buffer.from(`${JSON.stringify({ ...label, Line: line.toString('utf8') })}\n`)
      },
    },
  )
}

class LineOutput implements StreamOutput {
  readonly #sinks: Sinks
  readonly #formatter: LineFormatter
  /** The incomplete line of each log, by allocation, task and type: it may continue in the next file. */
  readonly #incomplete = new Map<string, { source: FrameSource; pieces: Buffer[]; bytes: number }>()

  constructor(sinks: Sinks, formatter: LineFormatter) {
    this.#sinks = sinks
    this.#formatter = formatter
  }

  write(frame: Frame): Promise<void> | undefined {
    const { data, file } = frame
    if (!data) return undefined
    const partial = this.#incompleteOf(frame)
    const lines: Buffer[] = []
    let from = 0
    for (let end = data.indexOf(NEWLINE); end >= 0; end = data.indexOf(NEWLINE, from)) {
      partial.pieces.push(data.subarray(from, end))
      lines.push(this.#formatter.format(takeLine(partial), frame))
      from = end + 1
    }
    if (from < data.length) {
      partial.pieces.push(data.subarray(from))
      partial.bytes += data.length - from
      if (partial.bytes > LINE_BYTES_MAX) lines.push(this.#formatter.format(takeLine(partial), frame))
    }
    return lines.length === 0 ? undefined : sinkOf(this.#sinks, file).write(Buffer.concat(lines))
  }

  async end(): Promise<void> {
    for (const partial of this.#incomplete.values()) {
      if (partial.pieces.length > 0) {
        await sinkOf(this.#sinks, partial.source.file).write(this.#formatter.format(takeLine(partial), partial.source))
      }
    }
    await endAll(this.#sinks)
  }

  #incompleteOf({ allocationId, file }: Frame) {
    const name = logName(file)
    const log = name ? `${name.task}\0${name.type}` : file
    const key = allocationId === undefined ? log : `${allocationId}\0${log}`
    const source = { file, ...(allocationId === undefined ? {} : { allocationId }) }
    let partial = this.#incomplete.get(key)
    if (!partial) this.#incomplete.set(key, (partial = { source, pieces: [], bytes: 0 }))
    partial.source = source
    return partial
  }
}

/** Joins and removes the pieces. */
function takeLine(partial: { pieces: Buffer[]; bytes: number }): Buffer {
  const [first] = partial.pieces
  const whole = first && partial.pieces.length === 1 ? first : Buffer.concat(partial.pieces)
  partial.pieces = []
  partial.bytes = 0
  return whole
}

async function endAll({ out, err }: Sinks): Promise<void> {
  await Promise.all(out === err ? [out.end()] : [out.end(), err.end()])
}
