/**
 * Preloaded into a process: its wall clock differs by the milliseconds in the file that `OUTPOST_TEST_CLOCK_FILE` names, which
 * can change while the process runs, as when an operator sets the clock. Monotonic time is not changed.
 */
import { readFileSync } from 'node:fs'

const READ_EVERY_MS = 100

const file = process.env['OUTPOST_TEST_CLOCK_FILE']
if (file !== undefined) {
  const now = Date.now
  let skewMs = 0
  const read = () => {
    try {
      skewMs = Number(readFileSync(file, 'utf8'))
    } catch {
      // The file was not written yet.
    }
  }
  read()
  setInterval(read, READ_EVERY_MS).unref()
  Date.now = () => now() + skewMs
  globalThis.Date = new Proxy(Date, {
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length === 0 ? [Date.now()] : args, newTarget),
  })
}

/** The environment of a process with such a clock. */
export function clockFrom(path: string): Readonly<Record<string, string>> {
  return { OUTPOST_NODE_OPTIONS: `--import=${import.meta.filename}`, OUTPOST_TEST_CLOCK_FILE: path }
}
