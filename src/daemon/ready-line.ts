/**
 * Prints the address and the ready line of a started process on stdout.
 *
 * With `log_json = true` each line is a JSON object like a log line, so a collector of both streams can parse all lines. The message
 * of the last line is the same as in the plain form, because tools wait for it. Otherwise the form is plain, also if the log is
 * JSON because stderr is not a terminal.
 */
import { type Demo, printBanner } from '../cli/demo.ts'
import type { Config } from '../config/load.ts'
import { entryLine, type LogFields } from '../platform/log.ts'

const STARTED = '==> outpost agent started'

export interface ReadyAgent {
  readonly config: Config
  readonly url: string
  /** Of a dev agent. */
  readonly rootToken: string | undefined
  readonly demo: Demo | undefined
}

export function printReadyLine({ config, demo, rootToken, url }: ReadyAgent): void {
  if (config.logJson === true) {
    if (rootToken !== undefined) printJson('development server', { url, token: rootToken, alloc_id: demo?.allocId })
    printJson(STARTED, { url })
    return
  }
  if (rootToken === undefined) process.stdout.write(`    HTTP: ${url}\n`)
  else printBanner({ url, token: rootToken, demo })
  process.stdout.write(`${STARTED}\n`)
}

function printJson(message: string, fields: LogFields): void {
  const at = new Date().toISOString()
  process.stdout.write(`${entryLine({ at, level: 'info', module: 'outpost', message, fields }, true)}\n`)
}
