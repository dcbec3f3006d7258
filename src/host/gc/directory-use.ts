/**
 * Whether an allocation directory is in use: processes, log pipes and mounts.
 *
 * The removal of a directory without a manifest depends on it, because only this shows whether its supervisor or its tasks
 * run. A process uses the directory if its environment has the allocation ID (`NOMAD_ALLOC_ID`, which tasks of Nomad and of
 * `alloc run` have), if its environment or command line contains the directory, or if its root, its working directory, an
 * open file or a mount of its namespace is in the directory. The ID on a command line does not count: `alloc gc` has it.
 *
 * Assumes /proc. Processes of other users are invisible to an agent without privileges, but it cannot remove their files
 * either.
 */
import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { unescapeMountPath } from '../stats/proc-file.ts'

/** Processes examined in parallel. */
const BATCH = 16

/** The ID of a process, other than this one, that uses `directory` of the allocation `id`. */
export async function findDirectoryUser(directory: string, id: string): Promise<number | undefined> {
  const pids = (await readdir('/proc')).map(Number).filter((pid) => pid > 0 && pid !== process.pid)
  for (let at = 0; at < pids.length; at += BATCH) {
    const batch = pids.slice(at, at + BATCH)
    const uses = await Promise.all(batch.map((pid) => usesDirectory(`/proc/${pid}`, directory, id)))
    const found = batch.find((_, index) => uses[index])
    if (found !== undefined) return found
  }
  return undefined
}

/**
 * True if the directory has log pipes of a Nomad agent (`alloc/logs/.TASK.stdout.fifo`). Nomad removes them at the end of
 * the task, so it still owns the allocation, even if its processes are invisible to this one.
 */
export async function hasLogPipes(directory: string): Promise<boolean> {
  const names = await readdir(join(directory, 'alloc/logs')).catch((): string[] => [])
  return names.some((name) => name.startsWith('.') && name.endsWith('.fifo'))
}

async function usesDirectory(entry: string, directory: string, id: string): Promise<boolean> {
  for (const [file, marks] of Object.entries({
    environ: [`ALLOC_ID=${id}`, directory],
    cmdline: [directory],
    mountinfo: [`/${id}`],
  })) {
    const text = await readFile(`${entry}/${file}`, 'latin1').catch(() => '')
    if (marks.some((mark) => text.includes(mark))) return true
  }
  const descriptors = await readdir(`${entry}/fd`).catch((): string[] => [])
  const links = ['cwd', 'root', ...descriptors.map((fd) => `fd/${fd}`)]
  const targets = await Promise.all(links.map((link) => readlink(`${entry}/${link}`).catch(() => '')))
  return targets.some((target) => target === directory || target.startsWith(`${directory}/`))
}

/**
 * Mount points in `directory`, as relative paths (`.` for itself). `directory` contains no symlinks. Empty without `/proc`.
 */
export async function mountsBelow(directory: string): Promise<readonly string[]> {
  let text: string
  try {
    text = await readFile('/proc/self/mountinfo', 'utf8')
  } catch {
    return []
  }
  const points = text.split('\n').map((line) => unescapeMountPath(line.split(' ')[4] ?? ''))
  const inside = points.filter((point) => point === directory || point.startsWith(`${directory}/`))
  return inside.map((point) => point.slice(directory.length + 1) || '.')
}
