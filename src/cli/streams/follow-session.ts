/**
 * One run of a command that prints streams: ends them all when the reader leaves, on Ctrl-C, or when one fails; and says
 * on stderr what happens to connections and files, once each.
 */
import { type ByteSink, openSink } from '../framework/byte-sink.ts'
import type { CommandIo } from '../framework/command-shape.ts'
import type { AgentTarget } from '../client/agent-target.ts'
import type { Frame } from './frame-reader.ts'
import type { Query } from '../client/http-client.ts'
import { framesOf, type Outage } from './log-stream.ts'
import type { Sinks, StreamOutput } from './stream-output.ts'
import { shownName } from '../framework/shown.ts'

export interface SessionOptions {
  readonly target: AgentTarget
  readonly io: CommandIo
  /** Ctrl-C is the usual end then: exit code 0. */
  readonly follow: boolean
  readonly resume: boolean
  /** True when the lines of stderr go to our stderr. */
  readonly splits: boolean
  /** Reports an event on stderr; the text of a single log unless given. */
  readonly onEvent?: (frame: Frame) => void
}

export class FollowSession {
  readonly sinks: Sinks
  readonly #options: SessionOptions
  readonly #ended = new AbortController()
  readonly #outage: Outage

  constructor(options: SessionOptions) {
    this.#options = options
    const open = options.io.openSink ?? openSink
    const out = open(1, options.follow)
    const err: ByteSink = options.splits ? open(2, false) : out
    this.sinks = { out, err }
    this.#outage = outageNotice(options)
    const end = () => this.#ended.abort()
    void out.gone.then(end)
    if (options.follow) process.once('SIGINT', end)
  }

  /** Copies one stream to its end. Throws CommandError. */
  async copy(path: string, query: Query, output: StreamOutput): Promise<void> {
    const { target, resume, io, onEvent } = this.#options
    const frames = framesOf({ target, path, query, resume, signal: this.#ended.signal, outage: this.#outage })
    for await (const frame of frames) {
      const taken = output.take(frame)
      // Ctrl-C must end us also while the reader takes nothing.
      if (taken) await Promise.race([taken, this.#whenEnded()])
      if (frame.event === '') continue
      if (onEvent) onEvent(frame)
      else io.err(`outpost: ${shownName(frame.file)}: ${shownName(frame.event)}, going on with what is there\n`)
    }
  }

  /** Copies several at once; the first error ends them all. */
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
   * Runs what copies, and hands over what is left of the output whatever becomes of it. Resolves to exit code 0: a
   * reader that has enough and Ctrl-C are good ends.
   */
  async run(output: StreamOutput, copying: () => Promise<void>): Promise<number> {
    let hasFailed = true
    try {
      await copying()
      hasFailed = false
    } finally {
      await Promise.race([output.end(), this.#whenEnded()])
      // Nothing that is still on its way may keep us.
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

/** Says an outage once, however many streams it breaks. */
function outageNotice({ io, target }: SessionOptions): Outage {
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
