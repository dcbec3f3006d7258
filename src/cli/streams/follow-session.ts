/**
 * One run of a command that prints streams. Ends all streams when the reader exits, on Ctrl-C, and when one stream fails. Reports outages
 * and file events on stderr.
 */
import { type ByteSink, openSink } from '../framework/byte-sink.ts'
import type { CommandIo } from '../framework/define-command.ts'
import type { AgentTarget } from '../client/agent-target.ts'
import type { Frame } from './frame-reader.ts'
import type { Query } from '../client/http-client.ts'
import { framesOf, type OutageReporter } from './resuming-stream.ts'
import type { StreamCursors } from './stream-cursors.ts'
import type { Sinks, StreamOutput } from './stream-output.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'

export interface SessionOptions {
  readonly target: AgentTarget
  readonly io: CommandIo
  /** True: Ctrl-C ends the command with exit code 0. */
  readonly follow: boolean
  readonly resume: boolean
  /** True: lines of stderr are written to stderr. */
  readonly splits: boolean
  /** Cursors of one stream; those of one allocation unless given. */
  readonly cursors?: () => StreamCursors
  /** Reports a file event; the text for a single log unless given. */
  readonly onEvent?: (frame: Frame) => void
}

export class FollowSession {
  readonly sinks: Sinks
  readonly #options: SessionOptions
  readonly #ended = new AbortController()
  readonly #outage: OutageReporter

  constructor(options: SessionOptions) {
    this.#options = options
    const open = options.io.openSink ?? openSink
    const out = open(1, options.follow)
    const err: ByteSink = options.splits ? open(2, false) : out
    this.sinks = { out, err }
    this.#outage = outageReporter(options)
    const end = () => this.#ended.abort()
    void out.gone.then(end)
    if (options.follow) process.once('SIGINT', end)
  }

  /** Copies one stream to its end. Throws CommandError. */
  async copy(path: string, query: Query, output: StreamOutput): Promise<void> {
    const { target, resume, io, onEvent } = this.#options
    const cursors = this.#options.cursors?.()
    const signal = this.#ended.signal
    const request = { target, path, query, resume, signal, outage: this.#outage, ...(cursors && { cursors }) }
    const frames = framesOf(request)
    for await (const frame of frames) {
      const written = output.write(frame)
      // Ctrl-C must end the command also while the reader is blocked.
      if (written) await Promise.race([written, this.#whenEnded()])
      if (frame.event === '') continue
      if (onEvent) onEvent(frame)
      else io.err(`outpost: ${escapeLine(frame.file)}: ${escapeLine(frame.event)}, continuing\n`)
    }
  }

  /** Copies several streams concurrently; the first error ends all. */
  async copyAll(copies: readonly (() => Promise<void>)[]): Promise<void> {
    const running = copies.map((copy) => copy())
    try {
      await Promise.all(running)
    } finally {
      if (copies.length > 1) {
        this.#ended.abort()
        await Promise.allSettled(running)
      }
    }
  }

  /**
   * Runs the copy and flushes the output in any case. Resolves to exit code 0, also when the reader exits and on Ctrl-C.
   */
  async run(output: StreamOutput, copying: () => Promise<void>): Promise<number> {
    let hasFailed = true
    try {
      await copying()
      hasFailed = false
    } finally {
      await Promise.race([output.end(), this.#whenEnded()])
      // A pending write must not delay the exit.
      if (!hasFailed && this.#ended.signal.aborted) process.exit(0)
    }
    return 0
  }

  #whenEnded(): Promise<void> {
    const { signal } = this.#ended
    if (signal.aborted) return Promise.resolve()
    return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
  }
}

/** Reports an outage once for all streams. */
function outageReporter({ io, target }: SessionOptions): OutageReporter {
  let broken = 0
  let remarks = new Set<string>()
  return {
    lost(reason) {
      if (broken++ === 0) io.err(`outpost: connection to ${target.url.origin} lost (${reason}), resuming\n`)
    },
    resumed(remark) {
      remarks.add(remark)
      if (--broken > 0) return
      io.err(`outpost: resumed${[...remarks].find((text) => text !== '') ?? ''}\n`)
      remarks = new Set()
    },
  }
}
