/**
 * The file with the token of an agent, for programs of its host: 0600, replaced atomically, removed when the agent stops. It
 * also has the address for which the token is valid, so that no command sends it elsewhere, and the role of the token. A file
 * of another user, or one that others can read or write, is refused.
 */
import { createHash } from 'node:crypto'
import { closeSync, fstatSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Fault } from '../platform/errors.ts'
import { openIfExists, replaceFile } from '../platform/program-file.ts'

/** Below the state directory of an agent. */
export const LOGIN_FILE = 'secrets-login.json'

/** The server for which the token is valid. */
export interface LoginAddress {
  readonly url: string
  /** PEM files. */
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
}

export interface StoredLogin {
  readonly token: string
  /** `roleDigest` of the token's role. */
  readonly role: string
  /** Absent: the agent uses NATS. */
  readonly address?: LoginAddress
}

const OTHERS = 0o077
const WRITABLE = 0o022

/** Identifies a role without its ID. */
export function roleDigest(mount: string, roleId: string): string {
  return createHash('sha256').update(`${mount}\n${roleId}`).digest('hex')
}

/** Throws the system's error; the previous file then stays. */
export function writeLogin(file: string, login: StoredLogin): void {
  replaceFile(file, `${JSON.stringify(login)}\n`)
}

/** Never throws: the next agent removes or replaces what could not be removed. */
export function removeLogin(file: string): void {
  for (const each of [file, `${file}.new`]) {
    try {
      rmSync(each, { force: true })
    } catch {
      // The token in it is revoked or expires.
    }
  }
}

/** Undefined without a file. Throws a Fault for a file that cannot be used. */
export function readLogin(file: string): StoredLogin | undefined {
  const descriptor = openIfExists(file)
  if (descriptor === undefined) return undefined
  try {
    requireTrusted(file, fstatSync(descriptor))
    const login = parsed(readFileSync(descriptor, 'utf8'))
    if (!login) throw new Fault(`${file} is malformed: not written by an agent`)
    return login
  } finally {
    closeSync(descriptor)
  }
}

/**
 * The writer of the file controls where secrets are read from, so its owner must be this user or root. The agent may run as another
 * user: root also trusts the owner of the directory. Throws a Fault.
 */
function requireTrusted(file: string, { mode, uid }: { readonly mode: number; readonly uid: number }): void {
  const user = process.geteuid?.() ?? uid
  const expected = user === 0 ? statSync(dirname(file)).uid : user
  if (uid !== expected && uid !== 0) {
    throw new Fault(`${file} belongs to user ${uid} and not to user ${expected}: chown ${expected} ${file}`)
  }
  if ((mode & OTHERS) === 0) return
  const right = (mode & WRITABLE) === 0 ? 'readable' : 'writable'
  throw new Fault(`${file} is ${right} by others: chmod 600 ${file}`)
}

function parsed(text: string): StoredLogin | undefined {
  try {
    const fields = textsIn(JSON.parse(text))
    const [token = '', role = ''] = [fields.texts.get('token'), fields.texts.get('role')]
    if (!/^[\x21-\x7e]+$/.test(token) || role === '') return undefined
    const { texts: at } = textsIn(fields.objects.get('address'))
    const url = at.get('url')
    const files = [...at].filter(([name]) => ['caFile', 'certFile', 'keyFile'].includes(name))
    return { token, role, ...(url !== undefined && { address: { url, ...Object.fromEntries(files) } }) }
  } catch {
    // The error may quote the token.
    return undefined
  }
}

function textsIn(value: unknown) {
  const entries: [string, unknown][] = typeof value === 'object' && value !== null ? Object.entries(value) : []
  const texts = new Map<string, string>()
  for (const [name, found] of entries) if (typeof found === 'string' && found !== '') texts.set(name, found)
  return { texts, objects: new Map(entries) }
}
