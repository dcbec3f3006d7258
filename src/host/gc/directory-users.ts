/**
 * Finds the processes that use an allocation directory, for the removal of a directory without a manifest: nothing else
 * says whether its supervisor or its tasks still run.
 *
 * A process uses the directory if its environment has the allocation ID (`NOMAD_ALLOC_ID`, which tasks of Nomad and of
 * `alloc run` have), if its environment or command line names the directory, or if its root, its working directory, an
 * open file or a mount of its namespace lies in the directory. The ID on a command line is no use: `alloc gc` has it.
 *
 * Assumes /proc. Processes of other users are invisible to an agent without privileges; their files cannot be removed by
 * it either.
 */
import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'

/** Process IDs that are examined at the same time. */
const BATCH = 16

/** The ID of a process that uses `directory` of the allocation `id`, other than this one; undefined if there is none. */
export async function userOf(directory: string, id: string): Promise<number | undefined> {
  const pids = (await readdir('/proc')).map(Number).filter((pid) => pid > 0 && pid !== process.pid)
  for (let at = 0; at < pids.length; at += BATCH) {
    const batch = pids.slice(at, at + BATCH)
    const uses = await Promise.all(batch.map((pid) => isUser(`/proc/${pid}`, directory, id)))
    const found = batch.find((_, index) => uses[index])
    if (found !== undefined) return found
  }
  return undefined
}

/**
 * True if the directory has log pipes of a Nomad agent (`alloc/logs/.TASK.stdout.fifo`): Nomad removes them when the task
 * has ended, so it still owns the allocation, also where its processes are invisible to this one.
 */
export async function hasLogPipes(directory: string): Promise<boolean> {
  const names = await readdir(join(directory, 'alloc/logs')).catch((): string[] => [])
  return names.some((name) => name.startsWith('.') && name.endsWith('.fifo'))
}

async function isUser(entry: string, directory: string, id: string): Promise<boolean> {
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
