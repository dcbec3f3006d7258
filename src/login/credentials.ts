/**
 * The credentials of a role, read from their files for each login, so that they can be replaced at run time. A
 * secret ID that other users can read, or that another user has written, is refused.
 */
import { fstatSync, openSync, closeSync, readFileSync, statSync, constants } from 'node:fs'
import { messageOf } from '../platform/errors.ts'
import { nameOfUser } from '../platform/program-file.ts'
import { pause } from './retry.ts'

/** An AppRole role and the files of its credentials. */
export interface LoginRole {
  /** Path of the auth method, for example `auth/approle`. */
  readonly mount: string
  /** The role ID, or the file that contains it. */
  readonly roleId: string | { readonly file: string }
  readonly secretIdFile: string
  /** The file contains a wrapping token for a secret ID, created by a request to this path. Absent: it contains the secret ID. */
  readonly wrappingPath?: string
}

/** A credential file that cannot be used: attempts fail until an operator fixes it. */
export class CredentialFault extends Error {
  override readonly name = 'CredentialFault'
  readonly isFinal = true
  /** Without paths, for readers of the process state who have no access to its log. */
  readonly shown: string

  constructor(message: string, shown: string, options?: ErrorOptions) {
    super(message, options)
    this.shown = shown
  }
}

const POLL_INTERVAL_MS = 1000
const BYTES_MAX = 64 << 10
const OTHERS_READ_OR_GROUP_WRITES = 0o027
const GROUP_READS = 0o040
const ROOT = 0

/** Throws CredentialFault. */
export function roleIdOf({ roleId }: LoginRole): string {
  return typeof roleId === 'string' ? roleId : contentOf(roleId.file, 'role ID', () => undefined)
}

/** The secret ID or wrapping token from its file. Throws CredentialFault. */
export function secretOf({ secretIdFile }: LoginRole): string {
  return contentOf(secretIdFile, 'secret ID', ({ gid, mode, uid }) => {
    const own = process.geteuid?.() ?? ROOT
    const is = `${secretIdFile} belongs to ${nameOfUser(uid)} with mode ${(mode & 0o7777).toString(8).padStart(4, '0')}`
    if (uid !== own && uid !== ROOT) {
      return `${is}, and this process runs as ${nameOfUser(own)}; run as root: chown ${nameOfUser(own)} ${secretIdFile} && chmod 600 ${secretIdFile}`
    }
    // systemd's credentials belong to root's group, which has no other members.
    const isWide = (mode & OTHERS_READ_OR_GROUP_WRITES) !== 0 || ((mode & GROUP_READS) !== 0 && gid !== ROOT)
    return isWide ? `other users can access it: ${is}; run: chmod 600 ${secretIdFile}` : undefined
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

/** Resolves when a credential file is replaced or changed, or the signal aborts. */
export async function untilCredentialsChange({ roleId, secretIdFile }: LoginRole, signal: AbortSignal): Promise<void> {
  const files = [secretIdFile, ...(typeof roleId === 'string' ? [] : [roleId.file])]
  const before = files.map(fingerprintOf).join()
  while (!signal.aborted && files.map(fingerprintOf).join() === before) await pause(POLL_INTERVAL_MS, signal)
}

function fingerprintOf(file: string): string {
  try {
    const { ctimeMs, ino, size } = statSync(file)
    return `${ino} ${size} ${ctimeMs}`
  } catch {
    return ''
  }
}
