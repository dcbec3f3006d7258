/**
 * Loaded into an agent before its own code (NODE_OPTIONS=--import): breaks it on SIGUSR2 as no request could.
 * OUTPOST_TEST_FAULT is `block:<file>`, the event loop stands still until the file is gone, or `close`, the HTTP server
 * stops to listen.
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
