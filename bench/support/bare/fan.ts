/**
 * Peer: lower bound of a fan-out. On command, writes the same number of chunks of the same size to all its sockets, evenly
 * over the same time.
 */
import { createServer, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { helperOptions, type Said, serveHere } from '../child.ts'
import { nowMs } from '../measure.ts'

export interface Order {
  readonly chunks: number
  readonly chunkBytes: number
  readonly overMs: number
}

async function fanOut(sockets: ReadonlySet<Socket>, order: Order): Promise<void> {
  const chunk = Buffer.alloc(order.chunkBytes, 'x')
  const beganMs = nowMs()
  for (let index = 0; index < order.chunks; index++) {
    const waitMs = beganMs + (index * order.overMs) / order.chunks - nowMs()
    if (waitMs > 1) await pause(waitMs)
    for (const socket of sockets) socket.write(chunk)
  }
}

helperOptions()
const sockets = new Set<Socket>()
process.on('message', (message) => {
  void fanOut(sockets, message as Order).then(() => process.send?.({ port: 0 } satisfies Said))
})
const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => socket.destroy())
  socket.on('close', () => sockets.delete(socket))
  socket.once('data', () => {
    socket.write('HTTP/1.1 200 OK\r\n\r\n', 'latin1')
    sockets.add(socket)
  })
})
serveHere(server)
