/**
 * Preloaded into an agent (NODE_OPTIONS=--import): causes a fault on SIGUSR2. OUTPOST_TEST_FAULT is `block:<file>`,
 * which blocks the event loop until the file is removed, or `close`, which closes the HTTP listener.
 */
import { subscribe } from 'node:diagnostics_channel'
import { existsSync, writeFileSync } from 'node:fs'
import { Server } from 'node:net'

const [what = '', file = ''] = (process.env['OUTPOST_TEST_FAULT'] ?? '').split(':')
const listening = new Set<Server>()
subscribe('tracing:net.server.listen:asyncEnd', (message) => {
  if (typeof message === 'object' && message !== null && 'server' in message && message.server instanceof Server) {
    listening.add(message.server)
  }
})

process.on('SIGUSR2', () => {
  if (what === 'close') for (const server of listening) server.close()
  if (what !== 'block') return
  writeFileSync(file, '')
  while (existsSync(file)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10)
})
