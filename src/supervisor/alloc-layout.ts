/** The directories of a task in an allocation directory, and the names of tasks. */
import { join } from 'node:path'
import { type AllocHandle, createDirectory, openOwnDirectory } from './alloc-directory-handle.ts'

/** Absolute paths for the environment of the command. */
export interface AllocPaths {
  readonly root: string
  readonly shared: string
  readonly local: string
  readonly secrets: string
}

export interface AllocLayout {
  readonly paths: AllocPaths
  /** Directory of the logs, by descriptor; valid until `close`. */
  readonly logs: string
  /** Private directory of the supervisor, by descriptor; valid until `close`. */
  readonly private: string
  close(): void
}

/** Creates missing directories with modes independent of the umask. Throws SupervisorError or the system error. */
export function createLayout(handle: AllocHandle, task: string): AllocLayout {
  for (const name of ['alloc', task]) createDirectory(join(handle.at, name), 0o755)
  createBelow(handle, 'alloc', { data: 0o755, logs: 0o755, tmp: 0o755 })
  createBelow(handle, task, { local: 0o755, secrets: 0o700, private: 0o700, tmp: 0o700 })
  const logs = openOwnDirectory(handle, 'alloc', 'logs')
  const privateDirectory = openOwnDirectory(handle, task, 'private')
  const { directory } = handle
  return {
    paths: {
      root: directory,
      shared: join(directory, 'alloc'),
      local: join(directory, task, 'local'),
      secrets: join(directory, task, 'secrets'),
    },
    logs: logs.at,
    private: privateDirectory.at,
    close: () => {
      logs.close()
      privateDirectory.close()
    },
  }
}

function createBelow(handle: AllocHandle, name: string, modes: Readonly<Record<string, number>>): void {
  const parent = openOwnDirectory(handle, name)
  try {
    for (const [below, mode] of Object.entries(modes)) createDirectory(join(parent.at, below), mode)
  } finally {
    parent.close()
  }
}

const NAME_BYTES_MAX = 128

/**
 * The fault of a task name, or undefined. The name is a directory beside `alloc/` and the first part of log file names, so it must be
 * one path component and neither hidden nor `alloc`.
 */
export function faultOfTaskName(name: string): string | undefined {
  if (name === 'alloc') return 'is reserved, use another task name'
  // oxlint-disable-next-line no-control-regex -- control characters are not allowed in names
  if (!/^[^./\u0000-\u001f\u007f][^/\u0000-\u001f\u007f]*$/.test(name)) {
    return 'must not start with a dot or contain a slash or a control character'
  }
  return Buffer.byteLength(name) > NAME_BYTES_MAX ? `must be at most ${NAME_BYTES_MAX} bytes` : undefined
}

/** The fault of a name that is only shown and compared, or undefined. */
export function faultOfName(name: string): string | undefined {
  // oxlint-disable-next-line no-control-regex -- control characters are not allowed in names
  if (/[\u0000-\u001f\u007f]/.test(name)) return 'must not contain control characters'
  return Buffer.byteLength(name) > NAME_BYTES_MAX ? `must be at most ${NAME_BYTES_MAX} bytes` : undefined
}
