/** The options of a device as callers give them and as they are kept. Every fault is a Rejection (400). */
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

/** Checks the options of a device of this type. Throws a Rejection that says what is wrong with the first. */
export function checkOptions(type: DeviceType, options: DeviceOptions): void {
  const unknown = Object.keys(options).filter((name) => !KNOWN[type].includes(name))
  if (unknown.length > 0) {
    throw new Rejection(
      400,
      `unknown options of a ${type} device: ${unknown.join(', ')}; it has ${KNOWN[type].join(', ')}`,
    )
  }
  if ((options['format'] ?? 'json') !== 'json') throw new Rejection(400, 'invalid "format": only json is written')
  if (type === 'file' && filePath(options).endsWith(RESERVE_SUFFIX))
    throw new Rejection(400, `file_path must not end in ${RESERVE_SUFFIX}, the name of the space for a full disk`)
  settingsOf(options)
  sinkOf(type, options).close()
}

/** How a device shows what it is given. */
export function settingsOf(options: DeviceOptions): DeviceSettings {
  return {
    isRaw: flag(options, 'log_raw', false),
    isAccessorHashed: flag(options, 'hmac_accessor', true),
    isListElided: flag(options, 'elide_list_responses', false),
  }
}

/** What a device writes to; nothing is opened. */
export function sinkOf(type: DeviceType, options: DeviceOptions): LineSink {
  const prefix = prefixOf(options)
  if (type === 'file')
    return new AuditFile({ path: filePath(options), mode: modeOf(options['mode'] ?? '0600'), prefix })
  const socketType = options['socket_type'] ?? 'tcp'
  if (socketType !== 'tcp' && socketType !== 'udp' && socketType !== 'unix') {
    throw new Rejection(400, 'invalid "socket_type": it is tcp, udp or unix')
  }
  const address = options['address'] ?? ''
  if (address === '') throw new Rejection(400, 'address is required')
  if (socketType !== 'unix') checkEndpoint(address)
  return new AuditSocket({ type: socketType, address, prefix, timeoutMs: timeoutOf(options['write_timeout']) })
}

/** The file of a device by the one name that it has: links of directories are followed. Undefined: it has none. */
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
  // They need not be there yet: SQLite would take one that appears for its own.
  if (/-(?:journal|wal|shm)$/.test(path)) throw new Rejection(400, 'file_path has the name of a file of a database')
  return path
}

/** Undefined for `0000`: the file keeps its permissions. */
function modeOf(text: string): number | undefined {
  if (!/^0?[0-7]{3}$/.test(text)) throw new Rejection(400, 'invalid "mode": it is octal, such as 0600')
  const mode = Number.parseInt(text, 8)
  if ((mode & 0o117) !== 0) {
    throw new Rejection(
      400,
      'invalid "mode": an audit file is never executable, nor anybody else\'s to read: at most 0660',
    )
  }
  return mode === 0 ? undefined : mode
}

function prefixOf(options: DeviceOptions): string {
  const prefix = options['prefix'] ?? ''
  // It begins each line: with braces a reader could not tell where the JSON begins, with `#!` it could make a program.
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
  throw new Rejection(400, `invalid "${name}": it is true or false`)
}
