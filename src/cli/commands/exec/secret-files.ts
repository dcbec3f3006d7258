/**
 * Secrets as files (0600) in a directory that its owner alone can enter. The directory is held by a descriptor, so that what
 * takes its name meanwhile gets nothing; each file is replaced whole, so that its reader sees the old value or the new one.
 */
import { closeSync, constants, fstatSync, mkdirSync, openSync, rmSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isErrno, messageOf } from '../../../platform/errors.ts'
import { replaceFile } from '../../../platform/own-file.ts'
import { lookAt } from '../../../supervisor/alloc-directory.ts'
import { openPlace, usersDirectory } from '../../../supervisor/alloc-directory-handle.ts'
import { CommandError } from '../../framework/command-shape.ts'
import { faultOfTaskName } from '../../client/identifier.ts'
import type { Texts } from './secret-values.ts'

export interface SecretDirectory {
  /** For people and for the command. */
  readonly shown: string
  /** By descriptor. */
  readonly at: string
  /** Whose the files are, where they are not this process's. */
  readonly owner?: { readonly uid: number; readonly gid: number }
  close(): void
}

/** Opens a directory of ours, made where it is missing. Throws CommandError. */
export function openDirectory(given: string): SecretDirectory {
  const shown = resolve(given)
  try {
    mkdirSync(shown, { mode: 0o700 })
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw new CommandError(`cannot make ${shown}: ${messageOf(error)}`)
  }
  let descriptor: number
  try {
    descriptor = openSync(shown, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)
  } catch (error) {
    const reason = isErrno(error, 'ELOOP', 'ENOTDIR') ? 'it is a symbolic link or no directory' : messageOf(error)
    throw new CommandError(`cannot open ${shown}: ${reason}`)
  }
  const { mode, uid } = fstatSync(descriptor)
  const fault =
    uid !== process.geteuid?.()
      ? 'it belongs to another user'
      : (mode & 0o077) !== 0
        ? `others can enter it: chmod 700 ${shown}`
        : undefined
  if (fault !== undefined) {
    closeSync(descriptor)
    throw new CommandError(`no secrets are written to ${shown}: ${fault}`)
  }
  return { shown, at: `/proc/${process.pid}/fd/${descriptor}`, close: () => closeSync(descriptor) }
}

/** Opens the `secrets/` of a task of an allocation on this host; the files there are its owner's. Throws CommandError. */
export function openAllocationSecrets(root: string, id: string, task: string | undefined): SecretDirectory {
  const place = openPlace(root, id)
  try {
    const tasks = Object.keys(lookAt(place).manifest?.Tasks ?? {})
    const name = task ?? (tasks.length === 1 ? tasks[0] : undefined)
    if (name === undefined) throw new CommandError(`which task of allocation ${id}? give -task`)
    const fault = faultOfTaskName(name)
    // The manifest may be another user's, and lead elsewhere.
    if (fault !== undefined) throw new CommandError(`the task ${JSON.stringify(name)} of allocation ${id} ${fault}`)
    if (!tasks.includes(name)) throw new CommandError(`allocation ${id} has no task ${JSON.stringify(name)}`)
    const held = usersDirectory(place, name, 'secrets')
    const { gid, uid } = statSync(held.at)
    const isOurs = uid === process.geteuid?.()
    const shown = join(place.directory, name, 'secrets')
    return { shown, at: held.at, ...(!isOurs && { owner: { uid, gid } }), close: () => held.close() }
  } finally {
    place.close()
  }
}

/** The files of one run, which are brought up to date with each change. */
export class SecretFiles {
  readonly #directory: SecretDirectory
  #written: Texts = new Map()

  constructor(directory: SecretDirectory) {
    this.#directory = directory
  }

  /** Writes what is new and removes what is gone. Throws CommandError; the files that it has not come to are as they were. */
  write(texts: Texts): void {
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
