/**
 * `outpost alloc stop`: through the manifest and signals, so that it works while no agent runs.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { LocalAllocation } from './alloc-directory.ts'
import { allocRoot, dataDirOption, isSupervised, look } from './alloc-directory.ts'
import { allocationDetails, allocationJson, findOne } from './alloc-view.ts'
import { CommandError, defineCommand } from './command-shape.ts'
import type { Manifest } from './manifest.ts'
import { processesOf, supervisorOf, withTasksLost, writeManifest } from './manifest.ts'
import { flag } from './options.ts'
import { isAlive, type ProcessIdentity, sendSignal } from './process-identity.ts'

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
    const found = findOne(root, id, io)
    const { manifest } = found
    if (!manifest) throw new CommandError(`allocation ${found.id} has no manifest, stop it where it was started`)
    if (isSupervised(manifest)) await stopSupervised(found.id, manifest)
    else if (found.status === 'lost') await cleanUp(found, manifest)
    const stopped = look(root, found.id)
    io.out(values.json ? `${JSON.stringify(allocationJson(stopped), undefined, 2)}\n` : allocationDetails(stopped))
    return 0
  },
})

async function stopSupervised(id: string, manifest: Manifest): Promise<void> {
  const supervisor = supervisorOf(manifest)
  if (!supervisor) throw new CommandError(`allocation ${id} has no supervisor on record, stop it where it was started`)
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
async function cleanUp({ directory }: LocalAllocation, manifest: Manifest): Promise<void> {
  const orphans = processesOf(manifest).filter(isAlive)
  for (const { pid } of orphans) sendSignal(-pid, 'SIGTERM')
  if (!(await goneWithin(orphans, manifest.KillTimeoutMs ?? DEFAULT_KILL_TIMEOUT_MS))) {
    for (const { pid } of orphans) sendSignal(-pid, 'SIGKILL')
    await goneWithin(orphans, SUPERVISOR_SLACK_MS)
  }
  writeManifest(directory, { ...withTasksLost(manifest, Date.now()), DesiredStatus: 'stop', ClientStatus: 'lost' })
}

async function goneWithin(processes: readonly ProcessIdentity[], limitMs: number): Promise<boolean> {
  const deadlineMs = performance.now() + limitMs
  while (processes.some(isAlive)) {
    if (performance.now() > deadlineMs) return false
    await delay(POLL_MS)
  }
  return true
}
