/**
 * `fs/cat` and `fs/readat`: the bytes of a file, whole or in part.
 *
 * The answer carries its exact length, so a file that shrinks while it is read ends as a broken answer that the caller
 * can see, never as a short one that looks whole; bytes appended meanwhile are not part of it. What the content is gets
 * sniffed, and nothing a task wrote is ever served as HTML.
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

/** Headers that keep a browser from running what a task wrote. */
const DEFUSED: Readonly<Record<string, string>> = {
  'Content-Security-Policy': "default-src 'none'; style-src 'unsafe-inline'; sandbox",
  'X-Content-Type-Options': 'nosniff',
  'X-XSS-Protection': '1; mode=block',
}

/** Content type that is safe to show, with the headers that go with it. */
function defusedType(head: Uint8Array): { contentType: string; headers: Readonly<Record<string, string>> } {
  if (head.length === 0) return { contentType: 'text/plain; charset=utf-8', headers: {} }
  const sniffed = sniffContentType(head)
  const markup = /^(text\/(html|xhtml|xml)|image\/svg)/.test(sniffed)
  return { contentType: markup ? 'text/plain' : sniffed, headers: DEFUSED }
}

/** Which bytes of a file of `size` bytes are asked for: `[start, end)`. */
export interface Span {
  readonly start: number
  readonly end: number
  /** Set when the answer is a part by the rules of HTTP (206), not by our own parameters. */
  readonly partial?: boolean
}

/** A single-range `Range` header (RFC 9110 §14); anything else is ignored as the RFC allows. Unsatisfiable: 416. */
function rangeSpan(range: string | undefined, size: number): Span {
  const match = /^bytes=(\d*)-(\d*)$/i.exec(range?.replaceAll(' ', '') ?? '')
  const [, first = '', last = ''] = match ?? []
  if (!match || (first === '' && last === '')) return { start: 0, end: size }
  const start = first === '' ? Math.max(size - Number(last), 0) : Number(first)
  const end = first === '' || last === '' ? size : Math.min(Number(last) + 1, size)
  if (first !== '' && last !== '' && Number(last) < Number(first)) return { start: 0, end: size }
  // The last bytes of an empty file are all of it, which a 206 has no way to say.
  if (size === 0 && first === '' && Number(last) > 0) return { start: 0, end: 0 }
  if (start >= size || (first === '' && Number(last) === 0)) {
    throw new Refusal('range_not_satisfiable', `range is beyond the end of the file, which has ${size} bytes`, {
      'Content-Range': `bytes */${size}`,
    })
  }
  return { start, end, partial: true }
}

/** Streams part of a file of an allocation; `spanOf` chooses the part once the size is known. */
async function* content(
  allocation: Allocation,
  path: string,
  spanOf: (size: number) => Span,
  extra: Readonly<Record<string, string>>,
): AsyncGenerator<Chunk> {
  const opened = openFile(allocation, path)
  const file = new OpenFile(opened.fd)
  const lease = new BufferLease({ framed: false })
  let clean = false
  try {
    const { size } = fstatSync(file.fd)
    const span = spanOf(size)
    // The first read tells what the content is, and often is all there is.
    const first = await readFirst(file, lease, span)
    yield headOf(first, span, size, extra)
    if (first.length > 0) yield first
    lease.took(first.length)
    let position = span.start + first.length
    if (position < span.end && first.length > 0) {
      for await (const chunk of readSpan(file, lease, { start: position, end: span.end })) {
        position += chunk.length
        yield chunk
      }
    }
    if (position < span.end) throw new Fault(`file shrank from ${size} bytes while it was read`)
    // Once the chunk behind this one is asked for, the last bytes are written and their buffers are free.
    if (first.length > 0) yield NOTHING
    clean = true
  } finally {
    file.close()
    if (clean) lease.rest()
    else lease.abandon()
  }
}

async function readFirst(file: OpenFile, lease: BufferLease, { start, end }: Span): Promise<Uint8Array> {
  if (start >= end) return NOTHING
  const buffer = lease.readBuffer()
  const got = await file.read(buffer, 0, Math.min(lease.readBytes(0), end - start), start)
  return buffer.subarray(0, got)
}

function headOf(first: Uint8Array, span: Span, size: number, extra: Readonly<Record<string, string>>): StreamHead {
  const { contentType, headers } = defusedType(first)
  const range = span.partial ? { 'Content-Range': `bytes ${span.start}-${span.end - 1}/${size}` } : {}
  return {
    status: span.partial ? 206 : 200,
    contentType,
    contentLength: span.end - span.start,
    headers: { ...headers, ...extra, ...range },
  }
}

const catInput = schema({
  alloc_id: allocIdParam,
  path: pathQuery,
  range: header('Single byte range, RFC 9110'),
  if_range: header('Makes Range count only if the file is as it was, which nothing here can tell'),
})
const readAtInput = schema({
  alloc_id: allocIdParam,
  path: pathQuery,
  offset: queryInteger({ description: 'First byte, counted from the start', fallback: 0, required: true }),
  limit: queryInteger({ description: 'Number of bytes; -1 means to the end', fallback: 0, required: true }),
})

/** Span of a readat. Zero and negative limits mean "to the end", as stock clients send -1. */
function readAtSpan(offset: number, limit: number, size: number, path: string): Span {
  if (offset < 0) {
    throw new Refusal('invalid_request', `can't seek to offset ${offset}: seek ${path}: invalid argument`)
  }
  const start = Math.min(offset, size)
  return { start, end: limit <= 0 ? size : Math.min(start + limit, size) }
}

export const fsCat = handleAllocation(
  {
    name: 'host.fs_cat',
    summary: 'Content of a file',
    path: 'fs/cat/:alloc_id',
    input: catInput,
    output: 'stream',
    needs: ['read-fs'],
  },
  () => (allocation, input) => {
    // Our answers carry no validator, so none that a caller has can be the right one.
    const range = input.if_range === undefined ? input.range : undefined
    return content(allocation, input.path, (size) => rangeSpan(range, size), { 'Accept-Ranges': 'bytes' })
  },
)

export const fsReadAt = handleAllocation(
  {
    name: 'host.fs_readat',
    summary: 'Part of a file',
    path: 'fs/readat/:alloc_id',
    input: readAtInput,
    output: 'stream',
    needs: ['read-fs'],
  },
  () =>
    (allocation, { path, offset, limit }) =>
      content(allocation, path, (size) => readAtSpan(offset, limit, size, path), {}),
)
