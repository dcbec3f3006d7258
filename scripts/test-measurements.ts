/** Wall time by file and CPU time by process of a test run, as recorded by `test-process.cts`. */
import { existsSync, readFileSync } from 'node:fs'
import { basename, relative } from 'node:path'

const SHOWN = 10
/** USER_HZ, the unit of process times in /proc; 100 on every Linux that Node supports. */
const TICKS_PER_SECOND = 100

/** CPU seconds of a process and its waited-for descendants, parsed from its `/proc/PID/stat`. */
function secondsOf(stat: string): number {
  // Counted from the third field, after the process name: utime, stime, cutime and cstime are the 14th to 17th.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_SECOND
}

/** CPU seconds of this process. */
export function cpuSeconds(): number {
  return secondsOf(readFileSync('/proc/self/stat', 'latin1'))
}

/** CPU seconds by the module that Node ran: a file or a group. Killed processes are missing. */
export function cpuSecondsByProcess(file: string): Map<string, number> {
  const seconds = new Map<string, number>()
  if (!existsSync(file)) return seconds
  for (const line of readFileSync(file, 'utf8').trimEnd().split('\n')) {
    const [path = '', stat = ''] = line.split('\t')
    seconds.set(path, (seconds.get(path) ?? 0) + secondsOf(stat))
  }
  return seconds
}

/** Prints the largest values, in seconds. */
export function showLargest(title: string, root: string, seconds: ReadonlyMap<string, number>): void {
  const largest = [...seconds].toSorted(([, one], [, other]) => other - one).slice(0, SHOWN)
  const nameOf = (path: string) =>
    path.endsWith('.mjs') ? `group ${basename(path, '.test.mjs')}` : relative(root, path)
  const lines = largest.map(([path, each]) => `${each.toFixed(1).padStart(8)}  ${nameOf(path)}\n`)
  process.stdout.write(`\nthe ${largest.length} ${title}, in seconds\n${lines.join('')}`)
}
