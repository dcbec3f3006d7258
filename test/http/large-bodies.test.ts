/** Many large bodies that never end, from callers whose token is one: the others get no part of the budget (test/attacks/costly-bodies). */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { listenTo } from '../helpers/core-listener.ts'
import { openKv } from '../helpers/kv-world.ts'
import { send } from '../helpers/openbao-replay.ts'

const MiB = 1 << 20
const MOST = Buffer.alloc(31 * MiB, 'a')

/** Sends 31 of 32 MiB; resolves with the first line of an answer, or `waits` when the server has taken all of it. */
async function begin(port: number, token: string, sockets: Socket[]): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  sockets.push(socket)
  await once(socket, 'connect')
  socket.on('error', () => undefined)
  const answered = new Promise<string>((resolve) => {
    socket.once('data', (bytes: Buffer) => resolve(bytes.toString('latin1').split('\r\n')[0] ?? ''))
  })
  socket.write(
    `POST /v1/secret/data/a HTTP/1.1\r\nHost: x\r\nX-Vault-Token: ${token}\r\nContent-Length: ${32 * MiB}\r\n\r\n`,
  )
  const taken = new Promise<string>((resolve) => socket.write(MOST, () => resolve('waits')))
  return Promise.race([answered, taken])
}

test('large bodies share a budget, and small and later ones are served regardless', async (t) => {
  const world = await openKv(t)
  const port = await listenTo(t, world)
  const sockets: Socket[] = []
  t.after(() => sockets.forEach((socket) => socket.destroy()))
  const headers = { 'X-Vault-Token': world.rootToken }
  const write = (bytes: number) => {
    const body = JSON.stringify({ data: { a: 'a'.repeat(bytes) } })
    return send(port, { method: 'POST', path: '/v1/secret/data/b', headers, body })
  }
  const outcomes: string[] = []
  for (let at = 0; at < 12; at++) outcomes.push(await begin(port, world.rootToken, sockets))
  assert.ok(outcomes.filter((each) => each === 'waits').length <= 9, String(outcomes))
  assert.ok(outcomes.includes('HTTP/1.1 503 Service Unavailable'), String(outcomes))
  assert.equal((await write(MiB / 2)).status, 200)
  for (const socket of sockets) socket.destroy()
  // The budget is released, repeatedly.
  let status = 0
  for (const endMs = performance.now() + 20_000; status !== 200 && performance.now() < endMs; ) {
    status = (await write(30 * MiB)).status
  }
  // No JSON, which is found when all of it has come; a text without an end behind the fault costs no time to parse.
  const body = Buffer.alloc(30 * MiB, 'a').fill('}"', 0, 2)
  for (let at = 0; at < 10; at++) {
    const answer = await send(port, { method: 'POST', path: '/v1/secret/data/b', headers, body })
    assert.deepEqual([answer.status, answer.body.includes('JSON')], [400, true], answer.body.slice(0, 200))
  }
})
