/** An attacker with the key of a worker host sends messages that outpost never sends. */
import assert from 'node:assert/strict'
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { test } from 'node:test'
import { connect } from '@nats-io/transport-node'
import { Packr } from 'msgpackr'
import { decodeProof } from '../../src/cluster/trust/assertion.ts'
import { decodeRefusal } from '../../src/cluster/trust/envelope.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { decodeAnswer, decodeCall, decodeControl } from '../../src/cluster/rpc/call-wire.ts'
import { Member } from '../helpers/cluster.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { send } from '../helpers/openbao-replay.ts'
import { eventually } from '../helpers/eventually.ts'

const NODE = '11111111-1111-4111-8111-111111111111'
const packr = new Packr({ useRecords: false })

/** Extensions of the library: the value that follows has this number; here stands the value of this number again. */
const NAMED = 0x69
const POINTER = 0x70
const extension = (type: number, id: number) => Buffer.from([0xd6, type, 0, 0, 0, id])

/** As many times the same value, which travels once. */
function repeated(value: Buffer, count: number, id: number): Buffer {
  const head = Buffer.of(0xdd, 0, 0, count >> 8, count & 0xff)
  return Buffer.concat([head, extension(NAMED, id), value, Buffer.alloc(6 * (count - 1), extension(POINTER, id))])
}

function mapOf(fields: Readonly<Record<string, unknown>>): Buffer {
  const entries = Object.entries(fields)
  const packed = entries.flatMap(([key, value]) => [
    packr.pack(key),
    Buffer.isBuffer(value) ? value : packr.pack(value),
  ])
  return Buffer.concat([Buffer.of(0x80 | entries.length), ...packed])
}

/** The state of a node in some kilobytes that stand for `count` allocations of `count` tasks each. */
function stateOf(count: number): Buffer {
  const task = packr.pack({ name: 'web', state: 'running', failed: false })
  const described = { id: NODE, name: 'web[0]', namespace: 'default', jobId: 'web', taskGroup: 'web' }
  const status = { desiredStatus: 'run', clientStatus: 'running', createTimeMs: 1 }
  const allocation = mapOf({ ...described, ...status, tasks: repeated(task, count, 2) })
  const about = { datacenter: 'dc1', nodeClass: '', nodePool: 'default', version: '1', httpAddress: '' }
  const resources = { cpuMhz: 1, cores: 1, memoryBytes: 1, diskBytes: 1 }
  const node = { id: NODE, name: 'bomb', ...about, tls: false, attributes: {}, meta: {}, resources }
  const order = { version: 2, run: 1, sequence: 1, digest: 'x' }
  return mapOf({ kind: 'state', ...order, node, allocations: repeated(allocation, count, 1) })
}

test('bytes that are not a valid message are rejected by every decoder', () => {
  const bombs = [
    Buffer.alloc(0),
    Buffer.of(0xc1),
    Buffer.of(0xdf, 0xff, 0xff, 0xff, 0xff),
    Buffer.of(0xd6, NAMED, 0, 0, 0, 1),
  ]
  const garbage = [...bombs, ...Array.from({ length: 500 }, (_, at) => randomBytes(at % 40))]
  for (const bytes of garbage) {
    assert.equal(decodeControl(bytes), undefined)
    assert.equal(decodeAnswer(bytes), undefined)
    assert.equal(typeof decodeCall(bytes), 'string')
    assert.equal(decodeProof(bytes), undefined)
    assert.equal(decodeRefusal(bytes.subarray(0, 1)), undefined)
  }
})

test('a small message that would expand to a huge state is refused before it is decoded', async (t) => {
  const nats = await startNatsServer(t)
  const server = await Member.make(t, 's1', { role: 'server', natsUrl: nats.url, acl: 'acl { enabled = false }' })
  await server.start()
  const bus = await connect({ servers: [nats.url] })
  t.after(() => bus.close())
  const subject = new Subjects('global').roster(NODE, 'state')
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const body = stateOf(300)
  const signed = sign(null, Buffer.concat([Buffer.from(`${subject}\0`), body]), privateKey)
  const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32)
  const message = Buffer.concat([Buffer.of(2), raw, signed, body])
  assert.ok(message.length < 5000, 'of 90,000 tasks')
  bus.publish(subject, message)
  await eventually(() => /malformed|node registered/.test(server.stderr))
  const { body: nodes } = await send(server.port, { method: 'GET', path: '/v1/nodes', headers: {} })
  assert.deepEqual(JSON.parse(nodes), [])
})
