/** The destination of the log by the configuration, and its changes at run time. */
import { fstatSync } from 'node:fs'
import { isatty } from 'node:tty'
import { LogFile } from '../../telemetry/log-file.ts'
import type { Config } from '../../config/load.ts'
import { messageOf } from '../../platform/errors.ts'
import { DescriptorOutput, LogSink } from '../../platform/log.ts'

const STANDARD_ERROR = new DescriptorOutput(2)

/** Time limit for an output that accepts nothing. */
const DRAIN_MS = 5000

/** The log of a process: the configured file, else stderr; plain text only on a terminal. */
export class ProcessLog {
  readonly sink: LogSink
  #settings: Config
  #file: LogFile | undefined
  /** Runs at every exit, also after an uncaught error or `process.exit`. */
  readonly #onExit = () => this.sink.close()

  /** Throws if the file cannot be opened. */
  constructor(config: Config) {
    this.#settings = config
    this.#file = fileOf(config)
    this.sink = new LogSink({
      output: this.#file ?? STANDARD_ERROR,
      level: config.logLevel,
      json: isJson(config),
      hasPriorities: !this.#file && isJournal(),
    })
    process.once('exit', this.#onExit)
  }

  /**
   * Flushes queued lines; nothing may be logged afterwards. Waits for the write in progress, so that what the process writes to
   * standard error next, such as the error of a failed start, is its last line.
   */
  async close(): Promise<void> {
    const limit = Promise.withResolvers<undefined>()
    const timer = setTimeout(() => limit.resolve(undefined), DRAIN_MS)
    await Promise.race([this.sink.drain(), limit.promise])
    clearTimeout(timer)
    process.off('exit', this.#onExit)
    this.sink.close()
  }

  /** Prepares another configuration; nothing changes before `commit`. Throws if the file cannot be opened. */
  prepare(config: Config): { commit(): void; drop(): void } {
    const { logFile, logRotate } = this.#settings
    const same = logFile === config.logFile && JSON.stringify(logRotate) === JSON.stringify(config.logRotate)
    const file = same ? this.#file : fileOf(config)
    return {
      commit: () => {
        this.#settings = config
        this.#file = file
        file?.reopen()
        this.sink.setLevel(config.logLevel)
        this.sink.redirect(file ?? STANDARD_ERROR, isJson(config), !file && isJournal())
      },
      drop: () => {
        if (!same) file?.close()
      },
    }
  }
}

function fileOf({ logFile, logRotate }: Config): LogFile | undefined {
  if (logFile === undefined) return undefined
  try {
    return new LogFile(logFile, logRotate)
  } catch (error) {
    throw new Error(`log_file cannot be opened: ${messageOf(error)}`, { cause: error })
  }
}

function isJson({ logFile, logJson }: Config): boolean {
  return logJson ?? (logFile !== undefined || !isatty(2))
}

/** Whether standard error is a connection to the journal: systemd.exec(5), JOURNAL_STREAM. */
function isJournal(): boolean {
  const { dev, ino } = fstatSync(2)
  return process.env['JOURNAL_STREAM'] === `${dev}:${ino}`
}
