/** A logger that records the lines of an operator log. */
import type { LogFields, Level, Logger } from '../../src/platform/log.ts'

export interface LogLine {
  readonly level: Level
  readonly message: string
  readonly fields: LogFields
}

/** Adds lines of level info and above to `lines`. */
export function recordingLogger(lines: LogLine[]): Logger {
  const at =
    (level: Level) =>
    (message: string, fields: LogFields = {}) =>
      void lines.push({ level, message, fields })
  const logger: Logger = {
    trace: () => undefined,
    debug: () => undefined,
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    named: () => logger,
    enabled: (level) => level !== 'trace' && level !== 'debug',
  }
  return logger
}
