/** Socket devices whose receiver does not read: what the buffers of the system accept, and when the device counts as recovered. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { loadConfig } from '../../../src/config/load.ts'
import { warningsOf } from '../../../src/daemon/monitoring/readiness.ts'
import { kv } from '../../../src/engines/kv/kv.ts'
import { writeConfig } from '../../helpers/agent-process.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { eventually } from '../../helpers/eventually.ts'

const TIMEOUT_MS = 500
const DELAY_MS = 10_000
const MIB = 1 << 20
const REASON = `accepted no data for ${TIMEOUT_MS} ms`

async function worldWith(t: TestContext, port: number): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { engines: [kv] })
  await world.ask('POST', 'sys/mounts/kept', { type: 'kv', options: { version: '2' } })
  const options = { address: `127.0.0.1:${port}`, write_timeout: `${TIMEOUT_MS}ms`, log_raw: 'true' }
  const enabled = await world.ask('PUT', 'sys/audit/siem', { type: 'socket', options })
  assert.equal(enabled.status, 204, enabled.text)
  return world
}

const write = (world: CoreWorld, bytes = 1) => world.ask('POST', 'kept/data/db', { data: { value: 'x'.repeat(bytes) } })
const read = async (world: CoreWorld) => (await world.ask('GET', 'sys/mounts')).status

/** Writes until the buffers of the system are full. */
async function fill(world: CoreWorld): Promise<void> {
  const refused = await eventually(async () => {
    const answer = await write(world, MIB)
    return answer.status === 200 ? undefined : answer
  }, 'the buffers are full')
  assert.equal(refused.body.errors[0], `no audit device has recorded the request: siem/ ${REASON}`)
}

/** Time passes without requests until the next probe. */
async function passes(world: CoreWorld, ms: number): Promise<void> {
  world.nowMs += ms
  await world.core.audit?.probe()
}

const isRecovered = ({ lines }: CoreWorld) => lines.at(-1)?.message === 'audit device recovered'

/** A receiver that does not read until `reads`. */
async function silentReceiver(t: TestContext) {
  const sockets: Socket[] = []
  const server = createServer({ pauseOnConnect: true }, (socket) => {
    socket.on('error', () => undefined)
    sockets.push(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, server, sockets }
}

/** The receiver of another process. */
async function receiverProcess(t: TestContext) {
  const program = `
    const server = require('node:net').createServer((socket) => socket.resume())
    server.listen(0, '127.0.0.1', () => console.log(server.address().port))`
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  return { child, port: Number(line.toString()) }
}

test('a receiver that is frozen gets no further lines after the timeout, until it reads', async (t) => {
  const { child, port } = await receiverProcess(t)
  const world = await worldWith(t, port)
  assert.equal(await read(world), 200)
  child.kill('SIGSTOP')
  await fill(world)
  const startedMs = performance.now()
  for (let at = 0; at < 100; at++) assert.equal(await read(world), 500)
  assert.ok(performance.now() - startedMs < (100 * TIMEOUT_MS) / 2, 'refused immediately')
  await passes(world, DELAY_MS - 1)
  assert.equal(await read(world), 500)
  assert.ok(!isRecovered(world))
  child.kill('SIGCONT')
  await eventually(async () => (await read(world)) === 200, 'it reads')
  assert.ok(!isRecovered(world))
  await passes(world, 5000 + TIMEOUT_MS - 1)
  assert.ok(!isRecovered(world), 'the period is longer than the timeout')
  await passes(world, 1)
  assert.ok(isRecovered(world))
})

test('a receiver that does not read gets a new connection after a delay, which doubles', async (t) => {
  const { port, sockets } = await silentReceiver(t)
  const world = await worldWith(t, port)
  const config = loadConfig({ paths: [writeConfig(world.directory, '')] }).config
  for (let delayMs = DELAY_MS, round = 1; round < 4; delayMs *= 2, round++) {
    await fill(world)
    world.nowMs += delayMs - 1
    assert.equal(await read(world), 500)
    world.nowMs += 1
    assert.equal(await read(world), 200, `connection ${round + 1}`)
    await eventually(() => sockets.length === round + 1, 'a new connection')
    await passes(world, delayMs)
    assert.ok(!isRecovered(world), 'that the system accepts data does not prove that it reads')
    const warning = `audit device write failed: siem/ ${REASON}, ${delayMs / 1000} s ago; it records again`
    assert.deepEqual(warningsOf({ cluster: undefined, config, core: world.core }), [warning])
  }
  // More bytes than the buffers of the system hold prove that it reads.
  sockets.at(-1)?.resume()
  for (let at = 0; at < 17; at++) assert.equal((await write(world, MIB)).status, 200)
  await passes(world, 5000 + TIMEOUT_MS)
  assert.ok(isRecovered(world))
  sockets.at(-1)?.pause()
  await fill(world)
  world.nowMs += DELAY_MS
  assert.equal(await read(world), 200, 'the delay is the first one again')
})

test('a connection that the receiver closes, or a reload, ends the delay', async (t) => {
  const { port, sockets } = await silentReceiver(t)
  const world = await worldWith(t, port)
  await fill(world)
  sockets[0]?.destroy()
  await eventually(async () => (await read(world)) === 200, 'a second connection')
  await fill(world)
  world.core.audit?.reopen()
  assert.equal(await read(world), 200, 'a third connection')
  await eventually(() => sockets.length === 3, 'it is connected')
  await passes(world, DELAY_MS)
  assert.ok(!isRecovered(world), 'a connection after a reload proves nothing either')
})
