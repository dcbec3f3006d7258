/**
 * The address of one line in a URL. Without a filter it is the file and the end of the line in it. With one, frames do not have exact
 * offsets, so the line is found by a hash of its text. The link has a cursor as well: the tail starts there, a few lines before.
 */
import { withoutEscapes } from '../model/escapes.ts'
import { timeOfLine } from '../model/line-time.ts'
import type { LogEntry } from '../model/log-buffer.ts'
import { type LogTarget, type LogType, pathOfTarget } from '../stream/log-target.ts'

export type LineAddress =
  | { readonly kind: 'offset'; readonly file: string; readonly endOffset: number }
  | { readonly kind: 'hash'; readonly log: string; readonly hash: string }

const OFFSET = /^(.+):(\d{1,16})$/
const HASH = /^(.+)~([\da-f]{8})$/

export function parseLineAddress(text: string): LineAddress | undefined {
  const hash = HASH.exec(text)
  if (hash) return { kind: 'hash', log: hash[1] ?? '', hash: hash[2] ?? '' }
  const offset = OFFSET.exec(text)
  return offset ? { kind: 'offset', file: offset[1] ?? '', endOffset: Number(offset[2]) } : undefined
}

export function formatLineAddress(address: LineAddress): string {
  return address.kind === 'hash' ? `${address.log}~${address.hash}` : `${address.file}:${address.endOffset}`
}

function addressOf(entry: LogEntry, isFiltered: boolean): LineAddress {
  return isFiltered
    ? { kind: 'hash', log: logOf(entry), hash: hashOf(entry.text) }
    : { kind: 'offset', file: entry.file, endOffset: entry.endOffset }
}

export function isAddressOf(address: LineAddress, entry: LogEntry): boolean {
  if (address.kind === 'offset') return entry.endOffset === address.endOffset && entry.file === address.file
  return logOf(entry) === address.log && hashOf(entry.text) === address.hash
}

function logOf({ source }: LogEntry): string {
  return source ? `${source.log.task}.${source.log.type}` : ''
}

/** FNV-1a. */
function hashOf(text: string): string {
  let hash = 0x811c9dc5
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  return (hash >>> 0).toString(16).padStart(8, '0')
}

/** Before the time of the line. */
const MARGIN_MS = 5000

interface LinkOptions {
  readonly isFiltered: boolean
  readonly type: LogType
  /** A position before the line. */
  readonly cursor: string | undefined
  /** Start of the current tail. */
  readonly start: string
}

/**
 * The path of the view that shows the line with the lines around it, without a filter. Of a job, it is the view of the line's allocation. Without
 * a cursor before the line, the tail starts shortly before the time of the line, or where the current one started.
 */
export function linkToLine(target: LogTarget, entry: LogEntry, options: LinkOptions): string {
  const { cursor, isFiltered, start, type } = options
  const allocation = entry.source?.log.allocationId ?? ''
  const shown: LogTarget = target.kind === 'job' ? { kind: 'allocation', allocation } : target
  const atMs = timeOfLine(withoutEscapes(entry.text))
  const since = atMs === undefined ? undefined : new Date(atMs - MARGIN_MS).toISOString()
  const query = new URLSearchParams(cursor === undefined && since === undefined ? start : '')
  if (cursor !== undefined) query.set('cursor', cursor)
  else if (since !== undefined) query.set('since', since)
  if (type !== '*') query.set('type', type)
  query.set('line', formatLineAddress(addressOf(entry, isFiltered)))
  return `/logs/${pathOfTarget(shown)}?${query.toString()}`
}
