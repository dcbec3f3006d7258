/**
 * Secrets as files (mode 0600) in a directory that only its owner can enter. The directory is used through a descriptor, so that a
 * directory that replaces it receives nothing. Each file is replaced atomically.
 */
import { closeSync, constants, fstatSync, mkdirSync, openSync, rmSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isErrno, messageOf } from '../../../platform/errors.ts'
import { replaceFile } from '../../../platform/program-file.ts'
import { readAllocationAt } from '../../../supervisor/alloc-directory.ts'
import { openAllocDirectory, openUserDirectory } from '../../../supervisor/alloc-directory-handle.ts'
import { CommandError } from '../../framework/define-command.ts'
import { faultOfTaskName } from '../../../supervisor/alloc-layout.ts'
import type { SecretTexts } from './secret-texts.ts'

export interface SecretDirectory {
  /** Path for messages. */
  readonly shown: string
  /** Path by descriptor. */
  readonly at: string
  /** Owner of the files if it is not this process's user. */
  readonly owner?: { readonly uid: number; readonly gid: number }
  close(): void
}

/** Opens a directory of this user; creates it if it is missing. Throws CommandError. */
export function openDirectory(given: string): SecretDirectory {
  const shown = resolve(given)
  try {
    mkdirSync(shown, { mode: 0o700 })
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw new CommandError(`cannot create ${shown}: ${messageOf(error)}`)
  }
  let descriptor: number
  try {
    descriptor = openSync(shown, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)
  } catch (error) {
    const reason = isErrno(error, 'ELOOP', 'ENOTDIR') ? 'it is a symbolic link or not a directory' : messageOf(error)
    throw new CommandError(`cannot open ${shown}: ${reason}`)
  }
  const { mode, uid } = fstatSync(descriptor)
  const fault =
    uid !== process.geteuid?.()
      ? 'it belongs to another user'
      : (mode & 0o077) !== 0
        ? `other users can enter it, run chmod 700 ${shown}`
        : undefined
  if (fault !== undefined) {
    closeSync(descriptor)
    throw new CommandError(`cannot write secrets to ${shown}: ${fault}`)
  }
  return { shown, at: `/proc/${process.pid}/fd/${descriptor}`, close: () => closeSync(descriptor) }
}

/** Opens the secrets directory of a task of this host. The files belong to the owner of the directory. Throws CommandError. */
export function openAllocationSecrets(root: string, id: string, task: string | undefined): SecretDirectory {
  const handle = openAllocDirectory(root, id)
  try {
    const tasks = Object.keys(readAllocationAt(handle).manifest?.Tasks ?? {})
    const name = task ?? (tasks.length === 1 ? tasks[0] : undefined)
    if (name === undefined)
      throw new CommandError(
        `allocation ${id} has ${tasks.length === 0 ? 'no known tasks' : `the tasks ${tasks.join(', ')}`}: use -task NAME`,
      )
    const fault = faultOfTaskName(name)
    // The manifest may belong to another user, who could use a path as the name.
    if (fault !== undefined) throw new CommandError(`task ${JSON.stringify(name)} of allocation ${id} ${fault}`)
    if (!tasks.includes(name)) throw new CommandError(`allocation ${id} has no task ${JSON.stringify(name)}`)
    const held = openUserDirectory(handle, name, 'secrets')
    const { gid, uid } = statSync(held.at)
    const isOurs = uid === process.geteuid?.()
    const shown = join(handle.directory, name, 'secrets')
    return { shown, at: held.at, ...(!isOurs && { owner: { uid, gid } }), close: () => held.close() }
  } finally {
    handle.close()
  }
}

/** The files of one run of `exec`. */
export class SecretFiles {
  readonly #directory: SecretDirectory
  #written: SecretTexts = new Map()

  constructor(directory: SecretDirectory) {
    this.#directory = directory
  }

  /** Writes changed files and removes files of deleted keys. Throws CommandError; later files are unchanged then. */
  write(texts: SecretTexts): void {
    const { at, owner, shown } = this.#directory
    const now = new Map(this.#written)
    try {
      for (const [name, text] of texts) {
        if (now.get(name) === text) continue
        replaceFile(join(at, name), text, { temporary: join(at, `.${name}.new`), ...(owner && { owner }) })
        now.set(name, text)
      }
      for (const name of this.#written.keys()) {
        if (texts.has(name)) continue
        rmSync(join(at, name), { force: true })
        now.delete(name)
      }
    } catch (error) {
      throw new CommandError(`cannot write to ${shown}: ${messageOf(error)}`)
    } finally {
      this.#written = now
    }
  }
}
