/** `outpost alloc stop`: uses the manifest and signals, so it needs no agent. */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../platform/errors.ts'
import { allocRoot, isSupervised, readAllocationAt } from '../../../supervisor/alloc-directory.ts'
import { allocationDetails, allocationJson, dataDirOption, findOne } from '../../client/local-allocations.ts'
import { type AllocHandle, becomeOwner, openAllocDirectory } from '../../../supervisor/alloc-directory-handle.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import type { Manifest, ManifestFile } from '../../../supervisor/manifest-file.ts'
import {
  processesOf,
  readManifestFile,
  supervisorOf,
  withTasksLost,
  writeManifest,
} from '../../../supervisor/manifest-file.ts'
import { flag } from '../../framework/options.ts'
import { faultOfSignalling, isAlive, type ProcessIdentity, sendSignal } from '../../../supervisor/process-identity.ts'
import { escapeJson } from '../../framework/terminal-escapes.ts'

const POLL_MS = 20
const DEFAULT_KILL_TIMEOUT_MS = 30_000
/** Time for a supervisor beyond its kill timeout: to close pipes and sync files. */
const SUPERVISOR_SLACK_MS = 10_000

export const command = defineCommand({
  name: 'alloc stop',
  summary: 'Stop an allocation of this host',
  details: [
    'Sends SIGTERM to the supervisor, which stops the command and kills it after the kill timeout. Waits until',
    'the supervisor has exited and prints the status. ID may be an ID prefix. Requires no agent.',
  ].join('\n'),
  options: { 'data-dir': dataDirOption, json: flag('Print the manifest as JSON') },
  operands: { shown: 'ID', min: 1, max: 1 },
  async run(values, [id = ''], io) {
    const root = allocRoot(values['data-dir'], io.env)
    const handle = openAllocDirectory(root, findOne(root, id, io).id)
    becomeOwner(handle)
    const { manifest, ownerId } = manifestFileOf(handle)
    if (isSupervised(manifest)) await stopSupervised(handle.id, manifest, ownerId)
    else if (readAllocationAt(handle).status === 'lost') await cleanUp(handle, manifest, ownerId)
    const stopped = readAllocationAt(handle)
    handle.close()
    io.out(
      values.json
        ? escapeJson(`${JSON.stringify(allocationJson(stopped), undefined, 2)}\n`)
        : allocationDetails(stopped),
    )
    return 0
  },
})

function manifestFileOf(handle: AllocHandle): ManifestFile {
  let file: ManifestFile | undefined
  try {
    file = readManifestFile(handle.at)
  } catch (error) {
    throw new CommandError(`${handle.directory}: ${messageOf(error)}`, 1, { cause: error })
  }
  if (file) return file
  throw new CommandError(`allocation ${handle.id} has no manifest, stop it with the supervisor that started it`)
}

/** Throws CommandError for a process that root must not signal because of this manifest alone. */
function refuseUnsafeSignal(id: string, processIdentity: ProcessIdentity, manifestOwnerId: number): void {
  const fault = faultOfSignalling(processIdentity, manifestOwnerId)
  if (fault === undefined) return
  const { pid } = processIdentity
  throw new CommandError(
    `cannot signal process ${pid} of allocation ${id} as root: ${fault}; check it (ps -fp ${pid}) and stop it with kill, or run this command as the user of the allocation`,
  )
}

async function stopSupervised(id: string, manifest: Manifest, ownerId: number): Promise<void> {
  const supervisor = supervisorOf(manifest)
  if (!supervisor)
    throw new CommandError(
      `the manifest of allocation ${id} names no supervisor, stop it with the supervisor that started it`,
    )
  refuseUnsafeSignal(id, supervisor, ownerId)
  // A second SIGTERM would kill the command, so a stop in progress is only waited for.
  const isStopping = manifest.DesiredStatus === 'stop'
  if (!isStopping && !sendSignal(supervisor.pid, 'SIGTERM') && isAlive(supervisor)) {
    throw new CommandError(
      `cannot signal supervisor ${supervisor.pid} of allocation ${id}: it belongs to another user, run this command as that user`,
    )
  }
  const limitMs = (manifest.KillTimeoutMs ?? DEFAULT_KILL_TIMEOUT_MS) + SUPERVISOR_SLACK_MS
  if (await goneWithin([supervisor], limitMs)) return
  throw new CommandError(`supervisor ${supervisor.pid} of allocation ${id} did not exit within ${limitMs / 1000} s`)
}

/** The supervisor was killed: stops its remaining processes and records the allocation as lost. */
async function cleanUp({ id, at }: AllocHandle, manifest: Manifest, ownerId: number): Promise<void> {
  const orphans = processesOf(manifest).filter(isAlive)
  for (const orphan of orphans) refuseUnsafeSignal(id, orphan, ownerId)
  for (const { pid } of orphans) sendSignal(-pid, 'SIGTERM')
  if (!(await goneWithin(orphans, manifest.KillTimeoutMs ?? DEFAULT_KILL_TIMEOUT_MS))) {
    for (const { pid } of orphans) sendSignal(-pid, 'SIGKILL')
    await goneWithin(orphans, SUPERVISOR_SLACK_MS)
  }
  writeManifest(at, { ...withTasksLost(manifest, Date.now()), DesiredStatus: 'stop', ClientStatus: 'lost' })
}

async function goneWithin(processes: readonly ProcessIdentity[], limitMs: number): Promise<boolean> {
  const deadlineMs = performance.now() + limitMs
  while (processes.some(isAlive)) {
    if (performance.now() > deadlineMs) return false
    await delay(POLL_MS)
  }
  return true
}
