/** A TCP proxy that a test can cut: connections through it break, and new ones are refused while it is down. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { TestContext } from 'node:test'

export interface CuttingProxy {
  readonly url: string
  /** Number of forwarded connections. */
  readonly count: number
  isDown: boolean
  /** Breaks all open connections after this number of forwarded bytes in both directions; never by default. */
  bytesLeft: number
  /** Breaks all open connections. */
  cut(): void
}

export async function cuttingProxy(t: TestContext, port: number): Promise<CuttingProxy> {
  const open = new Set<Socket>()
  const server = createServer((socket) => {
    if (proxy.isDown) {
      socket.destroy()
      return
    }
    counted++
    const onward = connect(port, '127.0.0.1')
    for (const [from, to] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      open.add(from)
      from.on('error', () => undefined)
      from.on('close', () => {
        open.delete(from)
        to.destroy()
      })
      from.on('data', (bytes: Buffer) => {
        proxy.bytesLeft -= bytes.length
        if (proxy.bytesLeft <= 0) proxy.cut()
      })
      from.pipe(to)
    }
  })
  let counted = 0
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const proxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    isDown: false,
    bytesLeft: Number.POSITIVE_INFINITY,
    get count() {
      return counted
    },
    cut() {
      for (const socket of open) socket.destroy()
    },
  }
  t.after(() => {
    proxy.cut()
    server.close()
  })
  return proxy
}
