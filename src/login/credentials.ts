/**
 * The credentials of a role, read from their files for each login, so that they can be replaced while the program runs. A
 * secret ID that other users can read, or that another user has written, is refused.
 */
import { fstatSync, openSync, closeSync, readFileSync, statSync, constants } from 'node:fs'
import { messageOf } from '../platform/errors.ts'
import { nameOfUser } from '../platform/own-file.ts'
import { pause } from './persistence.ts'

/** A role of AppRole, and where its credentials are. */
export interface Role {
  /** Path of the auth method, as `auth/approle`. */
  readonly mount: string
  /** The ID of the role, or the file that it is in. */
  readonly roleId: string | { readonly file: string }
  readonly secretIdFile: string
  /** The file holds a wrapping token for a secret ID that a request to this path made. Absent: the secret ID itself. */
  readonly wrappingPath?: string
}

/** What cannot be used on this host: the same attempt would fail again until somebody mends it. */
export class CredentialFault extends Error {
  override readonly name = 'CredentialFault'
  readonly isFinal = true
  /** Without a path, for those who may read the state of the process and not its log. */
  readonly shown: string

  constructor(message: string, shown: string, options?: ErrorOptions) {
    super(message, options)
    this.shown = shown
  }
}

/** How often files are looked at that are waited for. */
const LOOK_MS = 1000
const BYTES_MAX = 64 << 10
const OTHERS_READ_OR_GROUP_WRITES = 0o027
const GROUP_READS = 0o040
const ROOT = 0

/** Throws CredentialFault. */
export function roleIdOf({ roleId }: Role): string {
  return typeof roleId === 'string' ? roleId : contentOf(roleId.file, 'role ID', () => undefined)
}

/** What the file of the secret ID holds, which may be a wrapping token. Throws CredentialFault. */
export function secretOf({ secretIdFile }: Role): string {
  return contentOf(secretIdFile, 'secret ID', ({ gid, mode, uid }) => {
    const own = process.geteuid?.() ?? ROOT
    const is = `${secretIdFile} belongs to ${nameOfUser(uid)} with mode ${(mode & 0o7777).toString(8).padStart(4, '0')}`
    if (uid !== own && uid !== ROOT) {
      return `${is}, and this process runs as ${nameOfUser(own)}; run as root: chown ${nameOfUser(own)} ${secretIdFile} && chmod 600 ${secretIdFile}`
    }
    // systemd gives its credentials to root's group, which has no members but root.
    const isWide = (mode & OTHERS_READ_OR_GROUP_WRITES) !== 0 || ((mode & GROUP_READS) !== 0 && gid !== ROOT)
    return isWide ? `others can use it: ${is}; run: chmod 600 ${secretIdFile}` : undefined
  })
}

type Facts = Readonly<{ uid: number; gid: number; mode: number }>

function contentOf(file: string, what: string, faultOf: (facts: Facts) => string | undefined): string {
  const say = (reason: string, error?: unknown) =>
    new CredentialFault(`the ${what} cannot be used: ${reason}`, `the file of the ${what} cannot be used`, {
      cause: error,
    })
  let descriptor: number
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    throw say(messageOf(error), error)
  }
  try {
    const facts = fstatSync(descriptor)
    if (!facts.isFile()) throw say(`${file} is not a regular file`)
    const fault = faultOf(facts)
    if (fault !== undefined) throw say(fault)
    if (facts.size > BYTES_MAX) throw say(`${file} is larger than ${BYTES_MAX} bytes`)
    const text = readFileSync(descriptor, 'utf8').trim()
    if (text === '') throw say(`${file} is empty`)
    return text
  } finally {
    closeSync(descriptor)
  }
}

/** Resolves when a file of the role is another one than now, has other rights, or the signal aborts. */
export async function credentialsChanged({ roleId, secretIdFile }: Role, signal: AbortSignal): Promise<void> {
  const files = [secretIdFile, ...(typeof roleId === 'string' ? [] : [roleId.file])]
  const before = files.map(markOf).join()
  while (!signal.aborted && files.map(markOf).join() === before) await pause(LOOK_MS, signal)
}

function markOf(file: string): string {
  try {
    const { ctimeMs, ino, size } = statSync(file)
    return `${ino} ${size} ${ctimeMs}`
  } catch {
    return ''
  }
}
