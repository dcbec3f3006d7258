/**
 * An answer in a form in which two can be compared: what depends on the moment or on the machine is taken out (times,
 * sizes of directories, measurements, order of map keys), and nothing else.
 */
import { createHash } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import type { Answer } from './call.ts'
import { framesText, heartbeatTimes, offsetFaults, recordedFrames, splitFrames } from './frames.ts'
import type { RecordedAnswer, RecordedRow } from './recording.ts'

export interface Comparable {
  readonly status: number
  /** `name: value`, sorted, without what every answer of HTTP has. */
  readonly headers: readonly string[]
  readonly body: string
  /** How it went on: `ended`, `open` (until we hung up) or `broken`. */
  readonly end: string
  /** When the head came: `at once` or `with the first byte`; of followed files and logs only. */
  readonly head?: string
  readonly heartbeats?: string
}

const UNCOMPARED = /^(date|connection|keep-alive|transfer-encoding)$/
const LATE_MS = 100
/** Longer than a busy machine takes; a plain follow of an empty file would have no head at all. */
const AT_ONCE_MS = 3000
/** The recorded system's first heartbeat comes a second after the start. */
const FIRST_BEAT_MS = 800
const SECOND_MS = 1000

export const SILENCE: Comparable = { status: 0, headers: [], body: '', end: 'no answer' }

export function comparableRecorded(row: RecordedRow): Comparable {
  const { answer } = row
  if (!answer) return SILENCE
  const follows = answer.openMs !== undefined || isFollowed(row)
  return {
    status: answer.status,
    headers: headerLines(answer.headers, row, answer.text === '' || answer.size === 0),
    body: recordedBody(answer, row),
    end: answer.openMs === undefined ? 'ended' : 'open',
    ...(follows && answer.status === 200
      ? {
          head: (answer.headAtMs ?? 0) > LATE_MS ? 'with the first byte' : 'at once',
          heartbeats: isFramed(row) ? 'every second' : 'none',
        }
      : {}),
  }
}

export function comparableActual(answer: Answer, row: RecordedRow): Comparable {
  const encoded = answer.headers.some(([name, value]) => name.toLowerCase() === 'content-encoding' && value === 'gzip')
  const body = encoded ? gunzipSync(answer.body) : answer.body
  const followed = answer.status === 200 && (answer.end === 'open' || isFollowed(row))
  return {
    status: answer.status,
    headers: headerLines(answer.headers, row, body.length === 0),
    body: bodyText(body, row, answer.status),
    end: answer.end,
    ...(followed
      ? {
          head: answer.headAtMs < AT_ONCE_MS + answer.heldUpMs ? 'at once' : 'late',
          heartbeats: heartbeats(answer, row),
        }
      : {}),
  }
}

const isFramed = (row: RecordedRow): boolean =>
  /\/fs\/(logs|stream)\//.test(row.path) && !(row.path.includes('/fs/logs/') && row.path.includes('plain=true'))

const isFollowed = (row: RecordedRow): boolean =>
  row.path.includes('follow=true') || (row.path.includes('/fs/stream/') && /follow\/|follow-during/.test(row.name))

/** A machine that held this process up makes beats late by as much, and the next ones early. */
function heartbeats({ chunks, headAtMs, heldUpMs, end }: Answer, row: RecordedRow): string {
  const times = heartbeatTimes(chunks)
  if (!isFramed(row)) return 'none'
  const last = end === 'open' ? (chunks.at(-1)?.atMs ?? 0) : headAtMs
  const expected = Math.floor((last - headAtMs) / SECOND_MS) + 1
  const gaps = times.slice(1).map((time, index) => time - (times[index] ?? 0))
  const regular = gaps.every((gap) => gap > 0.5 * SECOND_MS - heldUpMs && gap < 1.8 * SECOND_MS + heldUpMs)
  const isEnough = times.length >= expected - 1 - Math.ceil(heldUpMs / SECOND_MS)
  const first = (times[0] ?? Infinity) - headAtMs < FIRST_BEAT_MS + heldUpMs
  return first && regular && isEnough ? 'one at once, then every second' : `at ${times.map(Math.round).join()}`
}

function headerLines(headers: readonly (readonly [string, string])[], row: RecordedRow, empty: boolean): string[] {
  const lines: string[] = []
  for (const [name, value] of headers) {
    const lower = name.toLowerCase()
    if (UNCOMPARED.test(lower)) continue
    // Lengths follow from the bodies, which are compared; they say something of their own where there is no body.
    if (lower !== 'content-length') lines.push(`${lower}: ${value}`)
    else if (row.method === 'HEAD' && row.path.includes('/fs/ls/')) lines.push('content-length: some')
    else if (empty) lines.push(`content-length: ${value}`)
  }
  return lines.sort()
}

function recordedBody(answer: RecordedAnswer, row: RecordedRow): string {
  if (isFramed(row) && answer.status === 200 && answer.frames) return framesText(recordedFrames(answer.frames))
  if (answer.text !== undefined) return bodyText(Buffer.from(answer.text), row, answer.status)
  if (answer.base64 !== undefined) return bodyText(Buffer.from(answer.base64, 'base64'), row, answer.status)
  return `${answer.size ?? 0} bytes ${answer.sha256 ?? ''}`
}

/** Longer bodies than this were recorded as their hash. */
const SHOWN_MAX = 16_384

function bodyText(body: Buffer, row: RecordedRow, status: number): string {
  const text = body.toString('utf8')
  if (status !== 200 || body.length === 0) return text
  if (isFramed(row)) {
    const split = splitFrames(text)
    const faults = offsetFaults(split.frames)
    return [framesText(split), ...faults].join('\n')
  }
  if (/\/fs\/(cat|readat|logs)\//.test(row.path)) return bytesText(body)
  const json = tryParse(text)
  return json === undefined ? text : `${layoutOf(text)} ${jsonForm(json, row)}`
}

function bytesText(body: Buffer): string {
  if (body.length <= SHOWN_MAX) return body.toString('latin1')
  return `${body.length} bytes ${createHash('sha256').update(body).digest('hex')}`
}

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** How the JSON is laid out: on one line, or with four spaces and a line end. */
function layoutOf(text: string): string {
  if (!text.includes('\n')) return 'compact'
  return /^[[{]\n {4}\S/.test(text) && text.endsWith('\n') ? 'pretty' : 'other layout'
}

function jsonForm(value: unknown, row: RecordedRow): string {
  if (/\/fs\/(ls|stat)\//.test(row.path)) return JSON.stringify(value, settled)
  if (/\/client\/stats|\/agent\/self|published/.test(row.path + row.name)) return JSON.stringify(shapeOf(value))
  return JSON.stringify(sorted(value))
}

const RFC3339_NANO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/

/** File facts without what depends on the moment and the file system: times, and sizes of directories and links. */
function settled(key: string, value: unknown): unknown {
  if (key === 'ModTime' && typeof value === 'string' && RFC3339_NANO.test(value)) return 'a time'
  if (typeof value !== 'object' || value === null || !('Size' in value) || !('FileMode' in value)) return value
  const varies = /^[dL]/.test(String(value.FileMode)) || ('Name' in value && value.Name === 'alloc.json')
  return varies ? { ...value, Size: 0 } : value
}

/** Maps came in any order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return Object.fromEntries(entries.map(([key, item]) => [key, sorted(item)]))
}

/** The kinds of the values; the processors and disks of a machine are as many as it has, or none (`null`). */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.every((item) => typeof item === 'string') ? value : [shapeOf(value[0])]
  if (typeof value !== 'object' || value === null) return value === null ? null : typeof value
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return Object.fromEntries(entries.map(([key, item]) => [/^\d+$/.test(key) ? 'pid' : key, shapeOf(item)]))
}
