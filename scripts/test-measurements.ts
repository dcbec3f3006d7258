/** What a run of the tests took: of the clock by file, and of the processors by process, as `test-process.cts` hands it on. */
import { existsSync, readFileSync } from 'node:fs'
import { basename, relative } from 'node:path'

const SHOWN = 10
/** USER_HZ, in which the kernel tells times of processes; 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100

/** Seconds of the processors that a process and all it has waited for took, with those that they had waited for; of its `/proc/PID/stat`. */
function secondsOf(stat: string): number {
  // From the third field on, behind the name: utime, stime, cutime and cstime are the 14th to the 17th.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_SECOND
}

/** Of this process. */
export function cpuSeconds(): number {
  return secondsOf(readFileSync('/proc/self/stat', 'latin1'))
}

/** Seconds of the processors by what Node ran: a file, or the module of a group. Those of a process that was killed are missing. */
export function cpuSecondsByProcess(file: string): Map<string, number> {
  const seconds = new Map<string, number>()
  if (!existsSync(file)) return seconds
  for (const line of readFileSync(file, 'utf8').trimEnd().split('\n')) {
    const [path = '', stat = ''] = line.split('\t')
    seconds.set(path, (seconds.get(path) ?? 0) + secondsOf(stat))
  }
  return seconds
}

/** Prints the largest, in seconds. */
export function showLargest(title: string, root: string, seconds: ReadonlyMap<string, number>): void {
  const largest = [...seconds].toSorted(([, one], [, other]) => other - one).slice(0, SHOWN)
  const nameOf = (path: string) =>
    path.endsWith('.mjs') ? `group ${basename(path, '.test.mjs')}` : relative(root, path)
  const lines = largest.map(([path, each]) => `${each.toFixed(1).padStart(8)}  ${nameOf(path)}\n`)
  process.stdout.write(`\nthe ${largest.length} ${title}, in seconds\n${lines.join('')}`)
}
