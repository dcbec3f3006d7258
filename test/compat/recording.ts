/** The recorded exchanges of fixtures/nomad, as they are in its files; the README there says where they come from. */
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'

const FOLDER = resolve(import.meta.dirname, '../../fixtures/nomad')

/** The allocation directory of the machine on which it was recorded. */
export const RECORDED_ALLOC_DIR = '/var/lib/nomad/alloc'

export interface RecordedFrame {
  readonly size?: number
  readonly data?: string
  readonly File?: string
  readonly FileEvent?: string
  readonly Offset?: number
}

export interface RecordedAnswer {
  readonly status: number
  /** Names and values in the order in which they came; `Date` and `Connection` are left out. */
  readonly headers: readonly (readonly [string, string])[]
  /** The body is one of these; decoded already when it was compressed. */
  readonly text?: string
  readonly base64?: string
  readonly sha256?: string
  readonly size?: number
  /** Frames of a stream whose body was too long to be kept. */
  readonly frames?: readonly RecordedFrame[]
  /** The stream was still open after this time, and the caller hung up. */
  readonly openMs?: number
  /** When the head came, where that was not at once. */
  readonly headAtMs?: number
}

export interface RecordedRow {
  readonly name: string
  readonly method: string
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Absent when no answer came within `silentMs`. */
  readonly answer?: RecordedAnswer
  readonly silentMs?: number
}

export type RecordingName = 'unary' | 'streams' | 'lifecycle' | 'more' | 'acl'

/** The rows of one file, in the order in which they were recorded; names get the file's name in front. */
export function recorded(file: RecordingName): RecordedRow[] {
  const lines = readFileSync(join(FOLDER, `${file}.jsonl`), 'utf8')
    .trim()
    .split('\n')
  return lines.map((line) => {
    const row = JSON.parse(line) as RecordedRow
    return { ...row, name: `${file}/${row.name}` }
  })
}
