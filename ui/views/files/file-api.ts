/** Requests of the views of files. The server finds the host of an allocation. */
import { read, send } from '../../api/client.ts'
import { type Frame, FrameReader } from '../../api/frame-reader.ts'
import type { HostFsStat } from '../../api/types.ts'

export function statFile(allocation: string, path: string, signal: AbortSignal): Promise<HostFsStat> {
  return read('/v1/client/fs/stat/{alloc_id}', { params: { alloc_id: allocation }, query: { path }, signal })
}

function endpoint(name: string, allocation: string): string {
  return `/v1/client/fs/${name}/${encodeURIComponent(allocation)}`
}

export async function readBytes(
  allocation: string,
  path: string,
  { limit, offset, signal }: { readonly offset: number; readonly limit: number; readonly signal?: AbortSignal },
): Promise<Uint8Array> {
  const response = await send(endpoint('readat', allocation), { query: { path, offset, limit }, signal })
  return new Uint8Array(await response.arrayBuffer())
}

export function openFile(allocation: string, path: string, signal?: AbortSignal): Promise<Response> {
  return send(endpoint('cat', allocation), { query: { path }, signal })
}

/** Frames of the last `tailBytes` of a file and of what is appended, or those after a cursor. Ends when the connection ends. */
export async function* followFile(
  allocation: string,
  path: string,
  { cursor, signal, tailBytes }: { readonly cursor: string; readonly tailBytes: number; readonly signal: AbortSignal },
): AsyncGenerator<Frame> {
  // `send` omits empty parameters, and an empty cursor requests cursors.
  const first = `?${new URLSearchParams({ path, cursor: '', follow: 'true', origin: 'end', offset: String(tailBytes) })}`
  const response = await send(endpoint('stream', allocation) + (cursor === '' ? first : ''), {
    query: cursor === '' ? {} : { path, cursor, follow: true },
    signal,
  })
  const frames = new FrameReader()
  const body = response.body?.getReader()
  if (!body) return
  for (;;) {
    const { done, value } = await body.read()
    if (done) return
    yield* frames.push(value)
  }
}
