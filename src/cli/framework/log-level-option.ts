/** The option `-log-level`. */
import type { Level } from '../../platform/log.ts'
import { choice } from './options.ts'

/** Values of `Level`, repeated here because commands do not load the code of the log. */
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const satisfies readonly Level[]

export function logLevelOption(shownDefault?: Level) {
  return choice({
    placeholder: 'LEVEL',
    help: 'Minimum level of log messages',
    choices: LEVELS,
    ...(shownDefault && { shownDefault }),
  })
}
