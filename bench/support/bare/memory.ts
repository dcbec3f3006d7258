/**
 * Peer: raw loopback. Responds to `GET /?bytes=N` with N bytes from memory through a bare socket, in writes of the
 * fastest size, and does nothing else.
 */
import { createServer, type Socket } from 'node:net'
import { helperOptions, serveHere } from '../child.ts'

/** Bytes per write: the fastest size between 16 KiB and 1 MiB. */
const BODY_BYTES = 1 << 20

/** Small enough to stay in the processor's cache, so no server that reads from memory can be faster. */
const body = Buffer.alloc(BODY_BYTES, 'one line of a log that is not there, or anything else\n')

function send(socket: Socket, bytes: number): void {
  let sent = 0
  const more = (error?: Error | null) => {
    if (error || socket.destroyed) return
    if (sent === bytes) return
    const slice = body.subarray(0, Math.min(BODY_BYTES, bytes - sent))
    sent += slice.length
    socket.write(slice, more)
  }
  socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${bytes}\r\n\r\n`, 'latin1')
  more()
}

helperOptions()
const server = createServer((socket) => {
  socket.on('error', () => socket.destroy())
  socket.on('data', (request) => send(socket, Number(/bytes=(\d+)/.exec(request.toString('latin1'))?.[1] ?? 0)))
})
serveHere(server)
