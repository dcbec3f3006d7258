/**
 * The static seal's key: 32 bytes that the machine itself holds, so that a server opens its barrier without anybody
 * present. Where it comes from is a setting; it is read when it is needed and kept nowhere.
 *
 *     file:///etc/outpost/unseal.key      32 bytes as they are, or hex or base64 text; not readable by everybody
 *     credential://NAME                   the same, of systemd's credentials (LoadCredential=, ImportCredential=)
 *     env://NAME                          hex or base64 text
 *     anything else                       hex or base64 text in the configuration itself
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, messageOf } from '../../platform/errors.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'

export interface StaticKeySource {
  /** The operator's name for it; it is not secret and is kept with what the key encrypts. */
  readonly id: string
  readonly source: string
}

/** The machine's own key cannot be had, or is not the one. For the operator: it names files and variables. */
export class StaticKeyFault extends Fault {}

/** What the configuration says about the seal. */
export type SealSettings =
  | { readonly type: 'shamir' }
  | {
      readonly type: 'static'
      /** The key is only there to change over to key shares. */
      readonly disabled: boolean
      readonly current: StaticKeySource
      /** The key before, for the first start with a new one. */
      readonly previous?: StaticKeySource
    }

export interface StaticKey {
  readonly id: string
  /** The caller overwrites it. */
  readonly key: Buffer
}

const FILE_BYTES_MAX = 4096
const READABLE_BY_ALL = 0o004
const HEX = /^[0-9a-f]{64}$/i
const BASE64 = /^[A-Za-z0-9+/]{43}=?$/
const CREDENTIAL_NAME = /^[^/\0]+$/

/** Settings from a configuration's text map. Throws a Fault that says what to write. */
export function sealSettings(type: 'shamir' | 'static', map: Readonly<Record<string, string>>): SealSettings {
  if (type === 'shamir') return { type }
  const { current_key_id: id, current_key: source, previous_key_id, previous_key, disabled } = map
  if (!id || !source) throw new Fault('server.seal "static" needs current_key_id and current_key')
  if (!previous_key_id !== !previous_key) {
    throw new Fault('server.seal "static": previous_key_id and previous_key go together')
  }
  if (previous_key_id === id) throw new Fault('server.seal "static": a new key needs a current_key_id of its own')
  return {
    type,
    disabled: disabled === 'true',
    current: { id, source },
    ...(previous_key_id && previous_key ? { previous: { id: previous_key_id, source: previous_key } } : {}),
  }
}

/** Reads a key. Throws a StaticKeyFault that names where it should have come from, never what was there. */
export function readStaticKey({ id, source }: StaticKeySource, environment = process.env): StaticKey {
  const { bytes, isFile } = bytesOf(source, id, environment)
  return { id, key: parse(bytes, isFile, `the static seal key "${id}"`) }
}

function bytesOf(source: string, id: string, environment: NodeJS.ProcessEnv): { bytes: Buffer; isFile: boolean } {
  const [, scheme, rest = ''] = /^([a-z]+):\/\/(.*)$/s.exec(source) ?? []
  switch (scheme) {
    case undefined:
      return { bytes: Buffer.from(source), isFile: false }
    case 'file':
      return { bytes: fileBytes(rest, id), isFile: true }
    case 'env': {
      const value = environment[rest]
      if (!value) throw new StaticKeyFault(`the static seal key "${id}": the environment variable ${rest} is not set`)
      return { bytes: Buffer.from(value), isFile: false }
    }
    case 'credential': {
      const directory = environment['CREDENTIALS_DIRECTORY']
      if (!directory) {
        throw new StaticKeyFault(
          `the static seal key "${id}": there are no systemd credentials; add LoadCredential=${rest}:…`,
        )
      }
      if (!CREDENTIAL_NAME.test(rest))
        throw new StaticKeyFault(`the static seal key "${id}": a credential has a plain name`)
      return { bytes: fileBytes(join(directory, rest), id), isFile: true }
    }
    default:
      throw new StaticKeyFault(`the static seal key "${id}": ${scheme}:// is none of file://, env://, credential://`)
  }
}

function fileBytes(path: string, id: string): Buffer {
  let descriptor: number
  try {
    descriptor = openSync(path, 'r')
  } catch (error) {
    throw new StaticKeyFault(`the static seal key "${id}": ${messageOf(error)}`, { cause: error })
  }
  try {
    const { mode, size } = fstatSync(descriptor)
    if ((mode & READABLE_BY_ALL) !== 0) {
      throw new Fault(
        `the static seal key "${id}": everybody on this machine can read ${path}; run: chmod 0600 ${path}`,
      )
    }
    if (size > FILE_BYTES_MAX)
      throw new StaticKeyFault(`the static seal key "${id}": ${path} is no key, it has ${size} bytes`)
    const bytes = Buffer.alloc(FILE_BYTES_MAX)
    const length = readSync(descriptor, bytes, 0, FILE_BYTES_MAX, 0)
    return bytes.subarray(0, length)
  } catch (error) {
    throw error instanceof Fault
      ? error
      : new Fault(`the static seal key "${id}": ${messageOf(error)}`, { cause: error })
  } finally {
    closeSync(descriptor)
  }
}

function parse(bytes: Buffer, isFile: boolean, what: string): Buffer {
  if (isFile && bytes.length === KEY_BYTES) {
    const raw = Buffer.from(bytes)
    bytes.fill(0)
    return raw
  }
  const text = bytes.toString('latin1').trim()
  bytes.fill(0)
  if (HEX.test(text)) return Buffer.from(text, 'hex')
  if (BASE64.test(text)) return Buffer.from(text, 'base64')
  throw new StaticKeyFault(`${what} must have ${KEY_BYTES} bytes, as they are (in a file) or in hex or base64`)
}
