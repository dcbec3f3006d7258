/**
 * A call to oneself: the only proof that a listener listens, the kernel accepts and the event loop turns.
 */
import { type AddressInfo, connect, type Server, type Socket } from 'node:net'

const LOOPBACK_OF: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' }

/**
 * Whether a connection to the server's own address arrives at the server within this time. Nothing is sent on it, so it
 * proves the same with TLS, and leaves no line in the access log. Never rejects.
 */
export function takesConnections(server: Server, withinMs: number): Promise<boolean> {
  const address = server.address() as AddressInfo | null // null also when it does not listen (any more)
  if (!address) return Promise.resolve(false)
  return new Promise((resolve) => {
    const arrived = new Set<number | undefined>()
    const socket = connect({ port: address.port, host: LOOPBACK_OF[address.address] ?? address.address })
    const finish = (result: boolean) => {
      clearTimeout(limit)
      server.off('connection', onArrival)
      socket.destroy()
      resolve(result)
    }
    const limit = setTimeout(() => finish(false), withinMs)
    // Either may be heard of first: that it is made, or that it has arrived.
    const check = () => {
      if (!socket.connecting && arrived.has(socket.localPort)) finish(true)
    }
    const onArrival = (peer: Socket) => {
      arrived.add(peer.remotePort)
      check()
    }
    server.on('connection', onArrival)
    socket.on('connect', check)
    socket.on('error', () => finish(false))
  })
}
