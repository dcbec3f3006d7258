/**
 * At most one agent for a state directory.
 *
 * Two agents on one would each write a whole `state.json` over the other's, collect each other's allocations and fight
 * for one node ID. The lock is flock(2) on `<state_dir>/agent.lock`: the kernel takes it back when its process ends,
 * however it ends, so there is no stale lock to judge by process IDs that may have been given to somebody else, and it
 * holds across containers that share the directory. A name in the abstract socket namespace would do the same, but
 * anybody on the host could take that name first; the state directory is ours alone.
 *
 * Node cannot call flock(2), but a lock belongs to the open file, not to the process that took it: `flock` (util-linux,
 * busybox) takes it on our descriptor, which stays open. The file is never removed: whoever waits for a lock on
 * a removed file would share the directory with whoever made a new one.
 *
 * What the file says, who holds the lock, is for the message only and decides nothing.
 */
import { spawn } from 'node:child_process'
import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { accessFault } from '../../platform/own-file.ts'

/** What `flock -n` ends with when somebody else has the lock. */
const HELD = 1

export interface StateLock {
  release(): void
}

/**
 * Takes the lock of `stateDir`, which is made (0700) when it is missing. Rejects with a `Fault` for the operator when
 * another agent has it. Where there is no way to lock, that is logged and the lock is none.
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
    if (outcome === 'held') throw inUse(stateDir, path)
    if (outcome !== 'locked')
      log.warn(`nothing keeps a second agent out of the state directory: ${outcome.why}`, { path })
    sayHolder(fd)
  } catch (error) {
    closeSync(fd)
    throw error
  }
  return { release: () => closeSync(fd) }
}

/** For the message to a second agent only: a full disk has no room for it, and the lock holds all the same. */
function sayHolder(fd: number): void {
  try {
    ftruncateSync(fd)
    writeSync(fd, `process ${process.pid}, started ${new Date().toISOString()}\n`)
  } catch (error) {
    if (!isErrno(error, 'ENOSPC', 'EDQUOT')) throw error
  }
}

type Outcome = 'locked' | 'held' | { readonly why: string }

function flock(fd: number): Promise<Outcome> {
  return new Promise((resolve) => {
    const child = spawn('flock', ['-n', '-x', '3'], { stdio: ['ignore', 'ignore', 'pipe', fd] })
    let stderr = ''
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
    child.on('error', (error) => {
      resolve({ why: isErrno(error, 'ENOENT') ? 'there is no program flock' : messageOf(error) })
    })
    child.on('close', (code, signal) => {
      if (code === 0) resolve('locked')
      else if (code === HELD && stderr === '') resolve('held')
      else resolve({ why: `flock: ${stderr.trim() || `ended with ${code ?? signal}`}` })
    })
  })
}

function inUse(stateDir: string, path: string): Fault {
  const holder = readFileSync(path, 'utf8').slice(0, 100).trim()
  const who = /^process \d+, started [\d:TZ.-]+$/.test(holder) ? ` (${holder})` : ''
  return new Fault(
    `another agent${who} uses ${stateDir}: stop it, or give this one a directory of its own (data_dir, client.state_dir)`,
  )
}
