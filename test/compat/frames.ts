/**
 * Streams of frames in a form that can be compared. How data is cut into frames depends on the moment of each read, so
 * frames of one file that follow each other become one line; the offset at its end stays, and so does each event.
 */
import type { Chunk } from './call.ts'
import type { RecordedFrame } from './recording.ts'

/** Data longer than this is compared by its length; the tests that know it compare the bytes as well. */
const SHOWN_MAX = 2000

export interface Frame {
  readonly data?: Buffer
  readonly size: number
  readonly file: string
  readonly event: string
  readonly offset: number
}

export interface Split {
  readonly frames: readonly Frame[]
  readonly heartbeats: number
  /** Text behind the last frame. */
  readonly rest: string
}

/** Cuts a body into frames, which stand back to back. A brace in a file name is an escape, so `}` ends a frame. */
export function splitFrames(body: string): Split {
  const frames: Frame[] = []
  let heartbeats = 0
  let at = 0
  while (body[at] === '{') {
    const end = body.indexOf('}', at)
    if (end < 0) break
    const parsed: unknown = JSON.parse(body.slice(at, end + 1))
    const frame = frameOf(parsed)
    if (frame) frames.push(frame)
    else heartbeats++
    at = end + 1
  }
  return { frames, heartbeats, rest: body.slice(at) }
}

function frameOf(value: unknown): Frame | undefined {
  if (typeof value !== 'object' || value === null) throw new Error('a frame must be an object')
  const keys = Object.keys(value)
  if (keys.length === 0) return undefined
  const order = ['Data', 'File', 'FileEvent', 'Offset'].filter((key) => keys.includes(key))
  if (order.join() !== keys.join()) throw new Error(`keys of a frame out of order: ${keys.join()}`)
  const data = 'Data' in value && typeof value.Data === 'string' ? Buffer.from(value.Data, 'base64') : undefined
  return {
    ...(data ? { data } : {}),
    size: data?.length ?? 0,
    file: 'File' in value ? String(value.File) : '',
    event: 'FileEvent' in value ? String(value.FileEvent) : '',
    offset: 'Offset' in value ? Number(value.Offset) : 0,
  }
}

export function recordedFrames(frames: readonly RecordedFrame[]): Split {
  const found = frames.filter((frame) => Object.keys(frame).length > 0)
  return {
    frames: found.map(({ size, data, File, FileEvent, Offset }) => ({
      ...(data === undefined ? {} : { data: Buffer.from(data) }),
      size: size ?? 0,
      file: File ?? '',
      event: FileEvent ?? '',
      offset: Offset ?? 0,
    })),
    heartbeats: frames.length - found.length,
    rest: '',
  }
}

interface Run {
  file: string
  event: string
  size: number
  offset: number
  parts: (Buffer | undefined)[]
}

/** One line for each run of data of a file, and one for each event. */
export function framesText({ frames, rest }: Split): string {
  const runs: Run[] = []
  for (const frame of frames) {
    const last = runs.at(-1)
    if (last && last.file === frame.file && last.event === '' && frame.event === '') {
      last.size += frame.size
      last.offset = frame.offset
      if (frame.size > 0) last.parts.push(frame.data)
    } else runs.push({ ...frame, parts: frame.size > 0 ? [frame.data] : [] })
  }
  const lines = runs.map(({ file, event, size, offset, parts }) =>
    [file, event, size > 0 ? shown(size, parts) : '', `@${offset}`].filter((part) => part !== '').join(' '),
  )
  if (rest !== '') lines.push(`then ${rest}`)
  return lines.join('\n')
}

function shown(size: number, parts: readonly (Buffer | undefined)[]): string {
  const known = parts.filter((part) => part !== undefined)
  if (size > SHOWN_MAX || known.length < parts.length) return `${size} bytes`
  return JSON.stringify(Buffer.concat(known).toString('latin1'))
}

/** Faults of offsets: each frame must end where its data ends, counted from where the one before it ended. */
export function offsetFaults(frames: readonly Frame[]): string[] {
  const faults: string[] = []
  let before: Frame | undefined
  for (const frame of frames) {
    const goesOn = before?.file === frame.file && before.event === '' && frame.event === ''
    if (before && goesOn && before.offset + frame.size !== frame.offset) {
      faults.push(`${frame.file}: ${before.offset} + ${frame.size} bytes is not ${frame.offset}`)
    }
    before = frame
  }
  return faults
}

/** Times of the heartbeats of a stream. */
export function heartbeatTimes(chunks: readonly Chunk[]): number[] {
  const times: number[] = []
  for (const { atMs, bytes } of chunks) {
    const count = bytes.toString('latin1').match(/(?<=^|\})\{\}/g)?.length ?? 0
    for (let i = 0; i < count; i++) times.push(atMs)
  }
  return times
}
