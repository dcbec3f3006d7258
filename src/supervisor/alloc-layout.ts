/** The directories of one task inside an allocation's directory. */
import { join } from 'node:path'
import { type AllocPlace, makeDirectory, ownDirectory } from './alloc-directory-handle.ts'

/** Absolute paths, as the command and people know them. */
export interface AllocPaths {
  readonly root: string
  readonly shared: string
  readonly local: string
  readonly secrets: string
}

export interface AllocLayout {
  readonly paths: AllocPaths
  /** Where the logs go, by descriptor: good until `close`. */
  readonly logs: string
  /** Where this supervisor keeps what is its own, by descriptor: good until `close`. */
  readonly private: string
  close(): void
}

/** Makes the directories that are missing. Modes do not depend on the caller's umask. Throws CommandError or the system's error. */
export function layOut(place: AllocPlace, task: string): AllocLayout {
  for (const name of ['alloc', task]) makeDirectory(join(place.at, name), 0o755)
  makeBelow(place, 'alloc', { data: 0o755, logs: 0o755, tmp: 0o755 })
  makeBelow(place, task, { local: 0o755, secrets: 0o700, private: 0o700, tmp: 0o700 })
  const logs = ownDirectory(place, 'alloc', 'logs')
  const own = ownDirectory(place, task, 'private')
  const { directory } = place
  return {
    paths: {
      root: directory,
      shared: join(directory, 'alloc'),
      local: join(directory, task, 'local'),
      secrets: join(directory, task, 'secrets'),
    },
    logs: logs.at,
    private: own.at,
    close: () => {
      logs.close()
      own.close()
    },
  }
}

function makeBelow(place: AllocPlace, name: string, modes: Readonly<Record<string, number>>): void {
  const above = ownDirectory(place, name)
  try {
    for (const [below, mode] of Object.entries(modes)) makeDirectory(join(above.at, below), mode)
  } finally {
    above.close()
  }
}
