/** Parses the options of audit devices. Every error is a Rejection (400). */
import { realpathSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, normalize } from 'node:path'
import { Rejection } from '../../engines/framework/engine.ts'
import { messageOf } from '../../platform/errors.ts'
import { AuditFile, type LineSink, RESERVE_SUFFIX } from './audit-file.ts'
import { AuditSocket, endpoint } from './audit-socket.ts'
import type { DeviceSettings } from './audit-device.ts'

export const DEVICE_TYPES = ['file', 'socket'] as const
export type DeviceType = (typeof DEVICE_TYPES)[number]
export type DeviceOptions = Readonly<Record<string, string>>

const COMMON = ['log_raw', 'hmac_accessor', 'elide_list_responses', 'format', 'prefix']
const KNOWN: Readonly<Record<DeviceType, readonly string[]>> = {
  file: [...COMMON, 'file_path', 'path', 'mode'],
  socket: [...COMMON, 'address', 'socket_type', 'write_timeout'],
}
const PREFIX_LENGTH_MAX = 64
const TIMEOUT_MS = 2000
const TIMEOUT_MS_MAX = 60_000

/** Throws a Rejection for the first invalid option. */
export function checkOptions(type: DeviceType, options: DeviceOptions): void {
  const unknown = Object.keys(options).filter((name) => !KNOWN[type].includes(name))
  if (unknown.length > 0) {
    throw new Rejection(
      400,
      `unknown options of a ${type} device: ${unknown.join(', ')}; known are ${KNOWN[type].join(', ')}`,
    )
  }
  if ((options['format'] ?? 'json') !== 'json') throw new Rejection(400, 'invalid "format": must be json')
  if (type === 'file' && filePath(options).endsWith(RESERVE_SUFFIX))
    throw new Rejection(400, `file_path must not end in ${RESERVE_SUFFIX}, the suffix of the reserve for a full disk`)
  settingsOf(options)
  sinkOf(type, options, () => 0).close()
}

export function settingsOf(options: DeviceOptions): DeviceSettings {
  return {
    isRaw: flag(options, 'log_raw', false),
    isAccessorHashed: flag(options, 'hmac_accessor', true),
    isListElided: flag(options, 'elide_list_responses', false),
  }
}

/** Creates the sink of a device without opening it. `elapsed`: monotonic milliseconds. */
export function sinkOf(type: DeviceType, options: DeviceOptions, elapsed: () => number): LineSink {
  const prefix = prefixOf(options)
  if (type === 'file')
    return new AuditFile({ path: filePath(options), mode: modeOf(options['mode'] ?? '0600'), prefix })
  const socketType = options['socket_type'] ?? 'tcp'
  if (socketType !== 'tcp' && socketType !== 'udp' && socketType !== 'unix') {
    throw new Rejection(400, 'invalid "socket_type": must be tcp, udp or unix')
  }
  const address = options['address'] ?? ''
  if (address === '') throw new Rejection(400, 'address is required')
  if (socketType !== 'unix') checkEndpoint(address)
  const timeoutMs = timeoutOf(options['write_timeout'])
  return new AuditSocket({ type: socketType, address, prefix, timeoutMs, elapsed })
}

/** The path of a device's file with links of directories resolved; undefined for a socket. */
export function fileOf(type: DeviceType, options: DeviceOptions): string | undefined {
  if (type !== 'file') return undefined
  const path = filePath(options)
  try {
    return join(realpathSync(dirname(path)), basename(path))
  } catch {
    return path
  }
}

function checkEndpoint(address: string): void {
  try {
    endpoint(address)
  } catch (error) {
    throw new Rejection(400, messageOf(error))
  }
}

function filePath(options: DeviceOptions): string {
  const path = options['file_path'] ?? options['path'] ?? ''
  if (path === '') throw new Rejection(400, 'file_path is required')
  if (!isAbsolute(path) || normalize(path) !== path || path.endsWith('/') || path.includes('\0')) {
    throw new Rejection(400, 'file_path must be the absolute path of a file, without "." and ".."')
  }
  // SQLite would use a file with such a name as its own, even if it is created later.
  if (/-(?:journal|wal|shm)$/.test(path))
    throw new Rejection(400, 'file_path must not end in -journal, -wal or -shm, the suffixes of database files')
  return path
}

/** Undefined for `0000`: the file keeps its permissions. */
function modeOf(text: string): number | undefined {
  if (!/^0?[0-7]{3}$/.test(text)) throw new Rejection(400, 'invalid "mode": must be octal, such as 0600')
  const mode = Number.parseInt(text, 8)
  if ((mode & 0o117) !== 0) {
    throw new Rejection(
      400,
      'invalid "mode": at most 0660, because an audit file must not be executable or accessible to other users',
    )
  }
  return mode === 0 ? undefined : mode
}

function prefixOf(options: DeviceOptions): string {
  const prefix = options['prefix'] ?? ''
  // With a brace a reader could not find the start of the JSON. With `#!` the file could be executed as a script.
  if (prefix.length > PREFIX_LENGTH_MAX || !/^(?!#!)[\x20-\x7e]*$/.test(prefix) || prefix.includes('{')) {
    throw new Rejection(400, `invalid "prefix": at most ${PREFIX_LENGTH_MAX} printable ASCII characters without "{"`)
  }
  return prefix
}

function timeoutOf(given: string | undefined): number {
  if (given === undefined || given === '') return TIMEOUT_MS
  const [, digits, unit] = /^(\d{1,5})(ms|s)?$/.exec(given) ?? []
  const timeoutMs = Number(digits) * (unit === 'ms' ? 1 : 1000)
  if (!(timeoutMs > 0 && timeoutMs <= TIMEOUT_MS_MAX)) {
    throw new Rejection(400, `invalid "write_timeout": from 1ms to ${TIMEOUT_MS_MAX / 1000}s`)
  }
  return timeoutMs
}

function flag(options: DeviceOptions, name: string, fallback: boolean): boolean {
  const text = options[name]
  if (text === undefined || text === '') return fallback
  if (text === 'true' || text === '1') return true
  if (text === 'false' || text === '0') return false
  throw new Rejection(400, `invalid "${name}": must be true or false`)
}
