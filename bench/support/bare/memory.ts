/**
 * Peer: the loopback itself. Answers `GET /?bytes=N` with N bytes from memory through a bare socket, in the writes that
 * move most, and does nothing else.
 */
import { createServer, type Socket } from 'node:net'
import { helperOptions, serveHere } from '../child.ts'

/** A whole body a write: of 16 KiB to 1 MiB what moves most. */
const BODY_BYTES = 1 << 20

/** Small enough to stay in the processor's cache: nothing that has to be fetched from memory can be faster. */
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
