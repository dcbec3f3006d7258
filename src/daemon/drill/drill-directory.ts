/**
 * The directory of a drill's copy. An existing directory of that name may contain other files, so only files whose names start with
 * `COPY_NAME` are ever removed. A directory that contains the copied database is refused first.
 */
import { lstatSync, readdirSync, realpathSync, rmdirSync, unlinkSync } from 'node:fs'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { Fault, isErrno } from '../../platform/errors.ts'

export const COPY_NAME = 'drill-copy.db'

/** Throws a Fault if the database, or a link on its path, is `directory` or below it. */
export function refuseAroundDatabase(directory: string, storagePath: string): void {
  const path = resolve(storagePath)
  const places = [path, join(realOf(dirname(path)), basename(path)), realOf(path)]
  const within = new Set([directory, realOf(directory)])
  for (const each of within) {
    if (!places.some((place) => place === each || place.startsWith(`${each}${sep}`))) continue
    throw new Fault(
      `the database ${storagePath} is in ${directory}, the directory of the copy: use another directory (-dir)`,
    )
  }
}

/**
 * Removes the copy of a killed drill; true if there was one. The caller holds the lock. Throws a Fault without a change if the path is
 * not a directory or contains other files.
 */
export function removeLeftover(directory: string): boolean {
  const found = lstatSync(directory, { throwIfNoEntry: false })
  if (!found) return false
  if (!found.isDirectory()) throw new Fault(`${directory} is not a drill directory: ${ELSEWHERE}`)
  const names = readdirSync(directory, { withFileTypes: true })
  const foreign = names.find((each) => !each.isFile() || !each.name.startsWith(COPY_NAME))
  if (foreign)
    throw new Fault(`${join(directory, foreign.name)} is not a file of a drill, nothing was removed: ${ELSEWHERE}`)
  for (const { name } of names) unlinkSync(join(directory, name))
  rmdirSync(directory)
  return true
}

const ELSEWHERE = 'move it away, or use another directory (-dir)'

/** The real path; the given one if the file does not exist. */
function realOf(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return path
    throw error
  }
}
