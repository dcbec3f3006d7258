/** A server that accepts connections and does not respond, such as a frozen process, is reported after ten seconds. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { test } from 'node:test'
import { OUTPOST, start } from './outpost-process.ts'

test('status commands do not wait for a frozen server as long as for a slow request', async (t) => {
  const server = createServer((socket) => {
    t.after(() => socket.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const { port } = server.address() as AddressInfo
  const commands = [['status'], ['operator', 'dr', 'status']]
  const results = commands.map(
    (command) => start(OUTPOST, [...command, '-address', `http://127.0.0.1:${port}`]).finished,
  )
  for (const { code, stderr } of await Promise.all(results)) {
    assert.match(stderr, /no response within 10 s/)
    assert.equal(code, 1)
  }
})
