/**
 * Where the frames of a stream go: as they are, or line by line with the task's name in front, or as JSON.
 */
import { logName } from '../client/alloc-argument.ts'
import type { ByteSink } from '../framework/byte-sink.ts'
import type { Frame } from './frame-reader.ts'
import { shownName } from '../framework/shown.ts'
import { painted, type Terminal } from '../output/terminal.ts'

/** A line that is longer is handed on in pieces. */
const LINE_BYTES_MAX = 1024 * 1024
const NEWLINE = 10
const END_OF_LINE = Buffer.from('\n')
const COLOURS = ['cyan', 'yellow', 'green', 'magenta', 'blue'] as const

export interface StreamOutput {
  /** A promise when the reader is behind: wait for it. */
  take(frame: Frame): Promise<void> | undefined
  /** Writes what was held back; resolves when the reader has everything. */
  end(): Promise<void>
}

export interface Sinks {
  readonly out: ByteSink
  /** Where the lines of stderr go; may be the same as `out`. */
  readonly err: ByteSink
}

function sinkOf(sinks: Sinks, file: string): ByteSink {
  return logName(file)?.type === 'stderr' ? sinks.err : sinks.out
}

/** Every byte as it comes, at once. */
export function rawOutput(sinks: Sinks): StreamOutput {
  // Frames of one file come in a row, mostly.
  let lastFile: string | undefined
  let last = sinks.out
  return {
    take(frame) {
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

/** Whose bytes they are. */
type Source = Pick<Frame, 'file' | 'allocationId'>

/** How a whole line is shown: what stands before it, and what behind it. */
interface Dress {
  dress(line: Buffer, source: Source): Buffer
}

/** Whole lines only, each with its task in front; in a stream of several allocations with `nameOf` the allocation before it. */
export function prefixedOutput(
  sinks: Sinks,
  terminal: Terminal,
  nameOf: (allocationId: string) => string = (id) => id,
): StreamOutput {
  const prefixes = new Map<string, Buffer>()
  const prefixOf = ({ allocationId, file }: Source) => {
    const task = logName(file)?.task ?? file
    const text = shownName(allocationId === undefined ? task : `${nameOf(allocationId)} ${task}`)
    let prefix = prefixes.get(text)
    if (!prefix) {
      const colour = COLOURS[prefixes.size % COLOURS.length] ?? 'cyan'
      prefix = Buffer.from(`${painted(`${text} |`, colour, terminal)} `)
      prefixes.set(text, prefix)
    }
    return prefix
  }
  return new LineOutput(sinks, { dress: (line, source) => Buffer.concat([prefixOf(source), line, END_OF_LINE]) })
}

/** One JSON object a line: task, type, file, and the line as text. */
export function jsonOutput(sinks: Sinks): StreamOutput {
  return new LineOutput(
    { out: sinks.out, err: sinks.out },
    {
      dress(line, { allocationId, file }) {
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
  readonly #how: Dress
  /** The begun line of each log, by allocation, task and type: a line may go on in the next file. */
  readonly #begun = new Map<string, { source: Source; pieces: Buffer[]; bytes: number }>()

  constructor(sinks: Sinks, how: Dress) {
    this.#sinks = sinks
    this.#how = how
  }

  take(frame: Frame): Promise<void> | undefined {
    const { data, file } = frame
    if (!data) return undefined
    const begun = this.#begunOf(frame)
    const lines: Buffer[] = []
    let from = 0
    for (let end = data.indexOf(NEWLINE); end >= 0; end = data.indexOf(NEWLINE, from)) {
      begun.pieces.push(data.subarray(from, end))
      lines.push(this.#how.dress(joined(begun), frame))
      from = end + 1
    }
    if (from < data.length) {
      begun.pieces.push(data.subarray(from))
      begun.bytes += data.length - from
      if (begun.bytes > LINE_BYTES_MAX) lines.push(this.#how.dress(joined(begun), frame))
    }
    return lines.length === 0 ? undefined : sinkOf(this.#sinks, file).write(Buffer.concat(lines))
  }

  async end(): Promise<void> {
    for (const begun of this.#begun.values()) {
      if (begun.pieces.length > 0) {
        await sinkOf(this.#sinks, begun.source.file).write(this.#how.dress(joined(begun), begun.source))
      }
    }
    await endAll(this.#sinks)
  }

  #begunOf({ allocationId, file }: Frame) {
    const name = logName(file)
    const log = name ? `${name.task}\0${name.type}` : file
    const key = allocationId === undefined ? log : `${allocationId}\0${log}`
    const source = { file, ...(allocationId === undefined ? {} : { allocationId }) }
    let begun = this.#begun.get(key)
    if (!begun) this.#begun.set(key, (begun = { source, pieces: [], bytes: 0 }))
    begun.source = source
    return begun
  }
}

/** Takes the pieces. */
function joined(begun: { pieces: Buffer[]; bytes: number }): Buffer {
  const [first] = begun.pieces
  const whole = first && begun.pieces.length === 1 ? first : Buffer.concat(begun.pieces)
  begun.pieces = []
  begun.bytes = 0
  return whole
}

async function endAll({ out, err }: Sinks): Promise<void> {
  await Promise.all(out === err ? [out.end()] : [out.end(), err.end()])
}
