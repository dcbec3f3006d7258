/**
 * The directory of a drill's copy. A directory of that name may hold something else, the database of a server among it, so
 * names decide what is removed: all files of a copy begin with `COPY_NAME`, which no other database of the program has unless
 * its operator chose it. What holds the database that is copied is refused before anything is looked at, whatever the names are.
 */
import { lstatSync, readdirSync, realpathSync, rmdirSync, unlinkSync } from 'node:fs'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { Fault, isErrno } from '../platform/errors.ts'

export const COPY_NAME = 'drill-copy.db'

/** Throws a Fault where the database, or a link on the way to it, is `directory` or lies below it. */
export function refuseAroundDatabase(directory: string, storagePath: string): void {
  const path = resolve(storagePath)
  const places = [path, join(realOf(dirname(path)), basename(path)), realOf(path)]
  const within = new Set([directory, realOf(directory)])
  for (const each of within) {
    if (!places.some((place) => place === each || place.startsWith(`${each}${sep}`))) continue
    throw new Fault(
      `the database ${storagePath} lies in ${directory}, where the copy belongs: name another directory (-dir)`,
    )
  }
}

/**
 * Removes what a drill that was killed has left; true where there was one. The caller has the lock. Throws a Fault for what is
 * no directory and for one that holds anything else, and removes nothing then.
 */
export function removeLeftover(directory: string): boolean {
  const found = lstatSync(directory, { throwIfNoEntry: false })
  if (!found) return false
  if (!found.isDirectory()) throw new Fault(`${directory} is no directory of a drill: ${ELSEWHERE}`)
  const names = readdirSync(directory, { withFileTypes: true })
  const foreign = names.find((each) => !each.isFile() || !each.name.startsWith(COPY_NAME))
  if (foreign)
    throw new Fault(`${join(directory, foreign.name)} is no file of a drill, nothing was removed: ${ELSEWHERE}`)
  for (const { name } of names) unlinkSync(join(directory, name))
  rmdirSync(directory)
  return true
}

const ELSEWHERE = 'move it away, or name another directory (-dir)'

/** What is not there is where its name says. */
function realOf(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return path
    throw error
  }
}
