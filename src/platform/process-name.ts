/** The name of this process in `ps`, `top` and `pgrep`. Node names its main thread "MainThread", as every Node process does. */
import { writeFileSync } from 'node:fs'

/** Keeps the command line readable, unlike `process.title`. Does nothing where there is no /proc. */
export function nameProcess(name: string): void {
  try {
    writeFileSync('/proc/self/comm', name)
  } catch {
    // A name is not worth a failed start.
  }
}
