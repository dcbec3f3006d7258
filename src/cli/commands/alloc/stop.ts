/**
 * `outpost alloc stop`: through the manifest and signals, so that it works while no agent runs.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../platform/errors.ts'
import { allocRoot, dataDirOption, isSupervised, lookAt } from '../../../supervisor/alloc-directory.ts'
import { allocationDetails, allocationJson, findOne } from '../../client/local-allocations.ts'
import { type AllocPlace, becomeOwner, openPlace } from '../../../supervisor/alloc-directory-handle.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import type { Manifest, ManifestFile } from '../../../supervisor/manifest.ts'
import {
  processesOf,
  readManifestFile,
  supervisorOf,
  withTasksLost,
  writeManifest,
} from '../../../supervisor/manifest.ts'
import { flag } from '../../framework/options.ts'
import { faultOfSignalling, isAlive, type ProcessIdentity, sendSignal } from '../../../supervisor/process-identity.ts'
import { shownJson } from '../../framework/shown.ts'

const POLL_MS = 20
const DEFAULT_KILL_TIMEOUT_MS = 30_000
/** What a supervisor may need beyond its kill timeout: pipes to close, disks to sync. */
const SUPERVISOR_SLACK_MS = 10_000

export const command = defineCommand({
  name: 'alloc stop',
  summary: 'Stop an allocation of this host',
  details: [
    'Sends SIGTERM to the supervisor, which stops the command and kills it after its kill timeout,',
    'waits until it is gone and prints the status. ID may be the beginning of an ID. Needs no agent.',
  ].join('\n'),
  options: { 'data-dir': dataDirOption, json: flag('Print the manifest as JSON') },
  operands: { shown: 'ID', min: 1, max: 1, missing: 'which allocation? give its ID or the beginning of it' },
  async run(values, [id = ''], io) {
    const root = allocRoot(values['data-dir'], io.env)
    const place = openPlace(root, findOne(root, id, io).id)
    becomeOwner(place)
    const { manifest, ownerId } = manifestFileOf(place)
    if (isSupervised(manifest)) await stopSupervised(place.id, manifest, ownerId)
    else if (lookAt(place).status === 'lost') await cleanUp(place, manifest, ownerId)
    const stopped = lookAt(place)
    place.close()
    io.out(
      values.json
        ? shownJson(`${JSON.stringify(allocationJson(stopped), undefined, 2)}\n`)
        : allocationDetails(stopped),
    )
    return 0
  },
})

function manifestFileOf(place: AllocPlace): ManifestFile {
  let file: ManifestFile | undefined
  try {
    file = readManifestFile(place.at)
  } catch (error) {
    throw new CommandError(`${place.directory}: ${messageOf(error)}`, 1, { cause: error })
  }
  if (file) return file
  throw new CommandError(`allocation ${place.id} has no manifest, stop it where it was started`)
}

/** Throws CommandError for a process that root must not signal on the word of this manifest. */
function refuseStranger(id: string, stranger: ProcessIdentity, manifestOwnerId: number): void {
  const fault = faultOfSignalling(stranger, manifestOwnerId)
  if (fault === undefined) return
  const { pid } = stranger
  throw new CommandError(
    `process ${pid} of allocation ${id} is not signalled as root, ${fault}: look at it (ps -fp ${pid}) and end it with kill, or run this command as the allocation's user`,
  )
}

async function stopSupervised(id: string, manifest: Manifest, ownerId: number): Promise<void> {
  const supervisor = supervisorOf(manifest)
  if (!supervisor) throw new CommandError(`allocation ${id} has no supervisor on record, stop it where it was started`)
  refuseStranger(id, supervisor, ownerId)
  // A second SIGTERM would kill: somebody else's stop is waited for instead.
  const isStopping = manifest.DesiredStatus === 'stop'
  if (!isStopping && !sendSignal(supervisor.pid, 'SIGTERM') && isAlive(supervisor)) {
    throw new CommandError(`supervisor ${supervisor.pid} belongs to another user, stop allocation ${id} as that user`)
  }
  const limitMs = (manifest.KillTimeoutMs ?? DEFAULT_KILL_TIMEOUT_MS) + SUPERVISOR_SLACK_MS
  if (await goneWithin([supervisor], limitMs)) return
  throw new CommandError(`supervisor ${supervisor.pid} of allocation ${id} still runs after ${limitMs / 1000} s`)
}

/** The supervisor died without a word: ends what it left behind and writes down what became of it. */
async function cleanUp({ id, at }: AllocPlace, manifest: Manifest, ownerId: number): Promise<void> {
  const orphans = processesOf(manifest).filter(isAlive)
  for (const orphan of orphans) refuseStranger(id, orphan, ownerId)
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
