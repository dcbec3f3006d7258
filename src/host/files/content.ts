/**
 * `fs/cat` and `fs/readat`: the content of a file or a range of it.
 *
 * The response has the exact Content-Length. If the file shrinks during the read, the response breaks instead of ending
 * early without an error. Bytes appended meanwhile are not part of it. The content type is sniffed, and nothing that a
 * task wrote is served as HTML.
 */
import { fstatSync } from 'node:fs'
import { Fault, Refusal } from '../../platform/errors.ts'
import type { Chunk, StreamHead } from '../../platform/operation.ts'
import { header, queryInteger, schema } from '../../platform/schema.ts'
import { openFile } from './alloc-files.ts'
import type { Allocation } from '../allocations/allocation.ts'
import { allocIdParam, handleAllocation, pathQuery } from '../allocations/allocation-operation.ts'
import { BufferLease } from './buffers.ts'
import { OpenFile, readSpan } from './read.ts'
import { sniffContentType } from './sniff.ts'

const NOTHING = Buffer.alloc(0)

/** Keep a browser from executing content of a task. */
const SAFE_HEADERS: Readonly<Record<string, string>> = {
  'Content-Security-Policy': "default-src 'none'; style-src 'unsafe-inline'; sandbox",
  'X-Content-Type-Options': 'nosniff',
  'X-XSS-Protection': '1; mode=block',
}

/** A content type that is safe to display, and the headers it needs. */
function safeType(head: Uint8Array): { contentType: string; headers: Readonly<Record<string, string>> } {
  if (head.length === 0) return { contentType: 'text/plain; charset=utf-8', headers: {} }
  const sniffed = sniffContentType(head)
  const markup = /^(text\/(html|xhtml|xml)|image\/svg)/.test(sniffed)
  return { contentType: markup ? 'text/plain' : sniffed, headers: SAFE_HEADERS }
}

/** The bytes `[start, end)` of a file. */
export interface ByteRange {
  readonly start: number
  readonly end: number
  /** The response is partial content of HTTP (206), not a range selected by query parameters. */
  readonly partial?: boolean
}

/** The range of a single-range `Range` header (RFC 9110 §14); other forms are ignored as the RFC allows. Unsatisfiable: 416. */
function headerRange(range: string | undefined, size: number): ByteRange {
  const match = /^bytes=(\d*)-(\d*)$/i.exec(range?.replaceAll(' ', '') ?? '')
  const [, first = '', last = ''] = match ?? []
  if (!match || (first === '' && last === '')) return { start: 0, end: size }
  const start = first === '' ? Math.max(size - Number(last), 0) : Number(first)
  const end = first === '' || last === '' ? size : Math.min(Number(last) + 1, size)
  if (first !== '' && last !== '' && Number(last) < Number(first)) return { start: 0, end: size }
  // The last bytes of an empty file are the whole file, and a 206 cannot express an empty range.
  if (size === 0 && first === '' && Number(last) > 0) return { start: 0, end: 0 }
  if (start >= size || (first === '' && Number(last) === 0)) {
    throw new Refusal('range_not_satisfiable', `range is beyond the end of the file, which has ${size} bytes`, {
      'Content-Range': `bytes */${size}`,
    })
  }
  return { start, end, partial: true }
}

/** Streams a range of a file of an allocation; `rangeOf` gets the size of the opened file. */
async function* content(
  allocation: Allocation,
  path: string,
  rangeOf: (size: number) => ByteRange,
  extra: Readonly<Record<string, string>>,
): AsyncGenerator<Chunk> {
  const opened = openFile(allocation, path)
  const file = new OpenFile(opened.fd)
  const lease = new BufferLease({ framed: false })
  let clean = false
  try {
    const { size } = fstatSync(file.fd)
    const range = rangeOf(size)
    // The content type comes from the first read, which often has the whole range.
    const first = await readFirst(file, lease, range)
    yield headOf(first, range, size, extra)
    if (first.length > 0) yield first
    lease.advance(first.length)
    let position = range.start + first.length
    if (position < range.end && first.length > 0) {
      for await (const chunk of readSpan(file, lease, { start: position, end: range.end })) {
        position += chunk.length
        yield chunk
      }
    }
    if (position < range.end) throw new Fault(`file shrank from ${size} bytes while it was read`)
    // When the next chunk is requested, the last bytes are written and their buffers are free.
    if (first.length > 0) yield NOTHING
    clean = true
  } finally {
    file.close()
    if (clean) lease.returnBuffers()
    else lease.dropBuffers()
  }
}

async function readFirst(file: OpenFile, lease: BufferLease, { start, end }: ByteRange): Promise<Uint8Array> {
  if (start >= end) return NOTHING
  const buffer = lease.readBuffer()
  const got = await file.read(buffer, 0, Math.min(lease.readBytes(0), end - start), start)
  return buffer.subarray(0, got)
}

function headOf(
  first: Uint8Array,
  range: ByteRange,
  size: number,
  extra: Readonly<Record<string, string>>,
): StreamHead {
  const { contentType, headers } = safeType(first)
  const partial = range.partial ? { 'Content-Range': `bytes ${range.start}-${range.end - 1}/${size}` } : {}
  return {
    status: range.partial ? 206 : 200,
    contentType,
    contentLength: range.end - range.start,
    headers: { ...headers, ...extra, ...partial },
  }
}

const catInput = schema({
  alloc_id: allocIdParam,
  path: pathQuery,
  range: header('Single byte range, RFC 9110'),
  if_range: header('Disables Range, because responses have no validator to compare it with'),
})
const readAtInput = schema({
  alloc_id: allocIdParam,
  path: pathQuery,
  offset: queryInteger({ description: 'First byte, counted from the start', fallback: 0, required: true }),
  limit: queryInteger({ description: 'Number of bytes; -1 means to the end', fallback: 0, required: true }),
})

/** Limits of zero and below mean "to the end", as stock clients send -1. */
function readAtRange(offset: number, limit: number, size: number, path: string): ByteRange {
  if (offset < 0) {
    throw new Refusal('invalid_request', `can't seek to offset ${offset}: seek ${path}: invalid argument`)
  }
  const start = Math.min(offset, size)
  return { start, end: limit <= 0 ? size : Math.min(start + limit, size) }
}

export const fsCat = handleAllocation(
  {
    name: 'host.fs_cat',
    summary: 'Read a file',
    path: 'fs/cat/:alloc_id',
    input: catInput,
    output: 'stream',
    needs: ['read-fs'],
  },
  () => (allocation, input) => {
    // Responses have no validator, so no If-Range value can match.
    const range = input.if_range === undefined ? input.range : undefined
    return content(allocation, input.path, (size) => headerRange(range, size), { 'Accept-Ranges': 'bytes' })
  },
)

export const fsReadAt = handleAllocation(
  {
    name: 'host.fs_readat',
    summary: 'Read part of a file',
    path: 'fs/readat/:alloc_id',
    input: readAtInput,
    output: 'stream',
    needs: ['read-fs'],
  },
  () =>
    (allocation, { path, offset, limit }) =>
      content(allocation, path, (size) => readAtRange(offset, limit, size, path), {}),
)
