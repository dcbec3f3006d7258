/**
 * The file in which an agent keeps its token for programs of its host: 0600, replaced whole, removed when the agent stops. It
 * also has the address for which the token is valid, so that no command sends it elsewhere, and the role that it was issued for. A file
 * of another user, or one that others can read or write, is refused.
 */
import { createHash } from 'node:crypto'
import { closeSync, fstatSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Fault } from '../platform/errors.ts'
import { openIfThere, replaceFile } from '../platform/own-file.ts'

/** Below the state directory of an agent. */
export const LOGIN_FILE = 'secrets-login.json'

/** How the server is reached with which the token is good. */
export interface LoginAddress {
  readonly url: string
  /** PEM files. */
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
}

export interface KeptLogin {
  readonly token: string
  /** Which role the token was made for, as `roleMark` has it. */
  readonly role: string
  /** Absent where the agent reaches the server over NATS. */
  readonly address?: LoginAddress
}

const OTHERS = 0o077
const WRITABLE = 0o022

/** Tells roles apart without naming them. */
export function roleMark(mount: string, roleId: string): string {
  return createHash('sha256').update(`${mount}\n${roleId}`).digest('hex')
}

/** Throws the system's error; what was there before is untouched then. */
export function writeLogin(file: string, login: KeptLogin): void {
  replaceFile(file, `${JSON.stringify(login)}\n`)
}

/** Never throws: what cannot be removed now is removed, or replaced, by the next agent. */
export function removeLogin(file: string): void {
  for (const each of [file, `${file}.new`]) {
    try {
      rmSync(each, { force: true })
    } catch {
      // The token in it is revoked, or ends by itself.
    }
  }
}

/** Undefined where there is none. Throws a Fault for a file that cannot be used. */
export function readLogin(file: string): KeptLogin | undefined {
  const descriptor = openIfThere(file)
  if (descriptor === undefined) return undefined
  try {
    requireTrusted(file, fstatSync(descriptor))
    const login = parsed(readFileSync(descriptor, 'utf8'))
    if (!login) throw new Fault(`${file} is not as an agent writes it`)
    return login
  } finally {
    closeSync(descriptor)
  }
}

/**
 * Whoever writes the file decides where secrets are read from, so its owner must be this user or root. The agent may run as a user of its
 * own: root also trusts the owner of the directory. Throws a Fault.
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

function parsed(text: string): KeptLogin | undefined {
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
