/**
 * The key of the static seal: 32 bytes that the machine has, so that a server unseals without an operator. A setting names its source. It
 * is read when it is needed and not kept.
 *
 *     file:///etc/outpost/unseal.key      32 raw bytes, or hex or base64 text; not world-readable
 *     credential://NAME                   the same, from systemd credentials (LoadCredential=, ImportCredential=)
 *     env://NAME                          hex or base64 text
 *     anything else                       hex or base64 text in the configuration itself
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, messageOf } from '../../platform/errors.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'

export interface StaticKeySource {
  /** The operator's name of the key. Not secret; stored with the encrypted root key. */
  readonly id: string
  readonly source: string
}

/** The machine's key is unavailable or wrong. For the operator: the message names files and variables. */
export class StaticKeyFault extends Fault {}

/** The seal in the configuration. */
export type SealSettings =
  | { readonly type: 'shamir' }
  | {
      readonly type: 'static'
      /** The key is used only for the migration to the shamir seal. */
      readonly disabled: boolean
      readonly current: StaticKeySource
      /** The previous key, for the first start with a new one. */
      readonly previous?: StaticKeySource
    }

export interface StaticKey {
  readonly id: string
  /** The caller overwrites it. */
  readonly key: Buffer
}

const FILE_BYTES_MAX = 4096
const WORLD_READABLE = 0o004
const HEX = /^[0-9a-f]{64}$/i
const BASE64 = /^[A-Za-z0-9+/]{43}=?$/
const CREDENTIAL_NAME = /^[^/\0]+$/

/** Settings from a text map of the configuration. Throws a Fault with instructions. */
export function sealSettings(type: 'shamir' | 'static', map: Readonly<Record<string, string>>): SealSettings {
  if (type === 'shamir') return { type }
  const { current_key_id: id, current_key: source, previous_key_id, previous_key, disabled } = map
  if (!id || !source) throw new Fault('server.seal "static" needs current_key_id and current_key')
  if (!previous_key_id !== !previous_key) {
    throw new Fault('server.seal "static": previous_key_id and previous_key must be set together')
  }
  if (previous_key_id === id) throw new Fault('server.seal "static": a new key needs a new current_key_id')
  return {
    type,
    disabled: disabled === 'true',
    current: { id, source },
    ...(previous_key_id && previous_key ? { previous: { id: previous_key_id, source: previous_key } } : {}),
  }
}

/** Reads a key. Throws a StaticKeyFault that names the source, never the content. */
export function readStaticKey({ id, source }: StaticKeySource, environment = process.env): StaticKey {
  const { bytes, isFile } = keyBytes(source, id, environment)
  return { id, key: parse(bytes, isFile, `the static seal key "${id}"`) }
}

function keyBytes(source: string, id: string, environment: NodeJS.ProcessEnv): { bytes: Buffer; isFile: boolean } {
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
          `the static seal key "${id}": no systemd credentials are available; add LoadCredential=${rest}:…`,
        )
      }
      if (!CREDENTIAL_NAME.test(rest))
        throw new StaticKeyFault(`the static seal key "${id}": a credential name must not contain "/"`)
      return { bytes: fileBytes(join(directory, rest), id), isFile: true }
    }
    default:
      throw new StaticKeyFault(
        `the static seal key "${id}": unknown source ${scheme}://, expected file://, env:// or credential://`,
      )
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
    if ((mode & WORLD_READABLE) !== 0) {
      throw new Fault(`the static seal key "${id}": ${path} is world-readable; run: chmod 0600 ${path}`)
    }
    if (size > FILE_BYTES_MAX)
      throw new StaticKeyFault(`the static seal key "${id}": ${path} is not a key: it has ${size} bytes`)
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
  throw new StaticKeyFault(`${what} must have ${KEY_BYTES} bytes, raw (in a file) or in hex or base64`)
}
