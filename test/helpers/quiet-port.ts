/** Ports for agents that keep their address over restarts. */
import { createServer } from 'node:net'

/** Below the range of outgoing connections: a client that retries while no process listens could otherwise connect to itself. */
const FIRST = 10_000
const COUNT = 10_000

/** Opens a socket; undefined if it is in use. */
async function opened(where: { readonly path: string } | { readonly host: string; readonly port: number }) {
  const server = createServer()
  // Not events.once, which rejects if it is in use, while the next port should be tried.
  const isFree = await new Promise<boolean>((done) => {
    server.once('listening', () => done(true)).once('error', () => done(false))
    server.listen(where)
  })
  return isFree ? server : undefined
}

/**
 * A free port that no other test process gets while this one runs, also while no process listens on it. It is reserved by a socket in
 * the abstract namespace of Linux, which the kernel removes with this process.
 */
export async function quietPort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * COUNT)
    const reservation = await opened({ path: `\0outpost-test-port-${port}` })
    if (!reservation) continue
    reservation.unref()
    const server = await opened({ host: '127.0.0.1', port })
    if (!server) continue
    await new Promise((done) => server.close(done))
    return port
  }
}
