/**
 * Exclusive lock of a state directory: at most one agent uses it.
 *
 * Two agents would overwrite each other's `state.json`, collect each other's allocations and use the same node ID. The lock
 * is flock(2) on `<state_dir>/agent.lock`. The kernel releases it at the end of its process, so there are no stale locks and
 * no checks of reused process IDs, and it works across containers that share the directory. A name in the abstract socket
 * namespace would work too, but any process of the host could bind it first; the state directory is private.
 *
 * Node cannot call flock(2), but a lock belongs to the open file description: `flock` (util-linux, busybox) acquires it on
 * the inherited descriptor, which the agent keeps open. The file is never removed: an agent that waits for the lock of a
 * removed file would share the directory with an agent that created a new one.
 *
 * The content of the file (the holder) is used only in the error message.
 */
import { spawn } from 'node:child_process'
import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { accessFault } from '../../platform/program-file.ts'

/** Exit code of `flock -n` if another process holds the lock. */
const HELD_EXIT_CODE = 1

export interface StateLock {
  release(): void
}

/**
 * Acquires the lock of `stateDir`, which is created (0700) if missing. Rejects with a `Fault` if another agent holds it. If
 * locking is impossible, a warning is logged and the lock has no effect.
 */
export async function lockState(stateDir: string, log: Logger): Promise<StateLock> {
  mkdirSync(stateDir, { recursive: true, mode: 0o700 })
  const path = join(stateDir, 'agent.lock')
  let fd: number
  try {
    fd = openSync(path, 'a+', 0o600)
  } catch (error) {
    throw accessFault(path, error)
  }
  try {
    const outcome = await flock(fd)
    if (outcome === 'held') throw inUseFault(stateDir, path)
    if (outcome !== 'locked')
      log.warn('state directory is not locked against a second agent', { path, reason: outcome.why })
    writeHolder(fd)
  } catch (error) {
    closeSync(fd)
    throw error
  }
  return { release: () => closeSync(fd) }
}

/** Only for the error message of a second agent, so a full disk is ignored. */
function writeHolder(fd: number): void {
  try {
    ftruncateSync(fd)
    writeSync(fd, `process ${process.pid}, started ${new Date().toISOString()}\n`)
  } catch (error) {
    if (!isErrno(error, 'ENOSPC', 'EDQUOT')) throw error
  }
}

type FlockResult = 'locked' | 'held' | { readonly why: string }

function flock(fd: number): Promise<FlockResult> {
  return new Promise((resolve) => {
    const child = spawn('flock', ['-n', '-x', '3'], { stdio: ['ignore', 'ignore', 'pipe', fd] })
    let stderr = ''
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
    child.on('error', (error) => {
      resolve({ why: isErrno(error, 'ENOENT') ? 'program flock not found' : messageOf(error) })
    })
    child.on('close', (code, signal) => {
      if (code === 0) resolve('locked')
      else if (code === HELD_EXIT_CODE && stderr === '') resolve('held')
      else resolve({ why: `flock: ${stderr.trim() || `ended with ${code ?? signal}`}` })
    })
  })
}

function inUseFault(stateDir: string, path: string): Fault {
  const holder = readFileSync(path, 'utf8').slice(0, 100).trim()
  const who = /^process \d+, started [\d:TZ.-]+$/.test(holder) ? ` (${holder})` : ''
  return new Fault(
    `another agent${who} uses ${stateDir}: stop it, or set another directory for this one (data_dir, client.state_dir)`,
  )
}
