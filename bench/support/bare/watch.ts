/**
 * Peer: lower bound of following a file. Waits for inotify, reads new data and writes it to every socket.
 */
import { fstatSync, openSync, readSync, watch } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { helperOptions, serveHere } from '../child.ts'

const { file = '' } = helperOptions()
const fd = openSync(file, 'r')
const buffer = Buffer.allocUnsafeSlow(65_536)
let position = fstatSync(fd).size
const sockets = new Set<Socket>()

watch(file, () => {
  const got = readSync(fd, buffer, 0, buffer.length, position)
  position += got
  if (got > 0) for (const socket of sockets) socket.write(Buffer.from(buffer.subarray(0, got)))
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
