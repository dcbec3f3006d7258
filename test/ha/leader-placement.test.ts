/** Which NATS servers are on this host. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isLocal, localFirst } from '../../src/ha/nats-leader-placement.ts'

test('NATS servers on this host come first, the others in random order', () => {
  const servers = [
    'nats://203.0.113.1:4222',
    'tls://localhost:4222',
    '203.0.113.2:4222',
    'nats://127.0.0.1:4223',
    'nats://[::1]:4222',
  ]
  const sorted = localFirst(servers, () => 0)
  assert.deepEqual(sorted.slice(0, 2), ['tls://localhost:4222', 'nats://127.0.0.1:4223'])
  assert.deepEqual(sorted.toSorted(), servers.toSorted())
  const orders = new Set(Array.from({ length: 50 }, () => localFirst(['203.0.113.1', '203.0.113.2']).join(' ')))
  assert.equal(orders.size, 2)
})

test('a name that is not resolved and a malformed server are not local', () => {
  assert.deepEqual([isLocal('nats.example.com'), isLocal('nats://'), isLocal('127.0.0.1')], [false, false, true])
})
