import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusal } from '../../../src/platform/errors.ts'
import type { AnyOperation, Identity } from '../../../src/platform/operation.ts'
import type { RawInput } from '../../../src/platform/schema.ts'
import { StatsSampler } from '../../../src/host/stats/sampler.ts'
import { allocationStats, hostStats } from '../../../src/host/stats/stats-operations.ts'
import { callOf, performed } from '../allocations/host-fixture.ts'
import { anAllocation, aTask, FakeTable, HandClock, samplerOptions, Tree } from './stats-trees.ts'
import type { TestContext } from 'node:test'

const NODE = '11111111-2222-4333-8444-555555555555'

const ANYBODY: Identity = {
  accessor: 'anonymous',
  allowsNode: () => false,
  allowsAgent: () => false,
  allowsNamespace: () => false,
}
const NODE_READER: Identity = { ...ANYBODY, allowsNode: (access) => access === 'read' }
const JOB_READER: Identity = {
  ...ANYBODY,
  allowsNamespace: (namespace, capability) => namespace === 'team' && capability === 'read-job',
}

function served(context: TestContext) {
  const tree = new Tree(context, 'process-tree')
  const allocation = anAllocation([aTask('web', [100]), aTask('other', [150])], { namespace: 'team' })
  const allocations = new FakeTable(allocation)
  const sampler = new StatsSampler({ ...samplerOptions(tree, new HandClock()), allocations })
  const parts = { sampler, allocations, nodeId: NODE }
  const [host, alloc] = [hostStats.in(parts), allocationStats.in(parts)]
  return { host, alloc, id: allocation.id, tree }
}

async function call(
  operation: AnyOperation,
  identity: Identity,
  params: Record<string, string>,
  query: [string, string][] = [],
) {
  const raw: RawInput = { params, query, headers: {}, body: undefined }
  const input = operation.input.parse(raw)
  const answer: unknown = await performed(operation, input, callOf(identity))
  return JSON.parse(JSON.stringify(answer))
}

function refusal(code: string, message: RegExp) {
  return (error: unknown) => error instanceof Refusal && error.code === code && message.test(error.message)
}

test('host statistics need node read and are served for this node only', async (context) => {
  const { host } = served(context)
  const answer = await call(host, NODE_READER, {})
  assert.equal(answer.Uptime, 1000)
  assert.equal((await call(host, NODE_READER, {}, [['node_id', NODE]])).Uptime, 1000)
  await assert.rejects(call(host, ANYBODY, {}), refusal('permission_denied', /^Permission denied$/))
  await assert.rejects(
    call(host, NODE_READER, {}, [['node_id', NODE.replace('1', '9')]]),
    refusal('not_found', /^Unknown node 9/),
  )
  await assert.rejects(call(host, NODE_READER, {}, [['node_id', 'short']]), refusal('invalid_request', /full node ID/))
})

const NET_DEV = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 8128    12873    0    0    0     0          0         0     8128   12873    0    0    0     0       0          0
  eth0:3386411430   80493    0    0    0     0          0         0  6096439   53229    0    0    0     0       0          0
veth1a:     700       7    0    0    0     0          0         0      900       9    0    0    0     0       0          0
`

const counters = (answer: { NetworkStats?: { Interface: string }[] }) => answer.NetworkStats

test('host statistics have the counters of the physical interfaces if requested, and as Nomad none otherwise', async (context) => {
  const { host, tree } = served(context)
  tree.write('proc/net/dev', NET_DEV)
  assert.deepEqual(
    counters(await call(host, NODE_READER, {}, [['network', 'true']]))?.map(({ Interface }) => Interface),
    ['eth0', 'veth1a'],
    'a container has no physical interface',
  )
  tree.write('sys/class/net/eth0/device/vendor', '0x1af4')
  const answer = await call(host, NODE_READER, {}, [['network', 'true']])
  assert.deepEqual(counters(answer), [{ Interface: 'eth0', ReceivedBytes: 3_386_411_430, SentBytes: 6_096_439 }])
  assert.deepEqual(Object.keys(answer), Object.keys(answer).toSorted())
  assert.equal(counters(await call(host, NODE_READER, {})), undefined)
  tree.remove('proc/net/dev')
  assert.deepEqual(counters(await call(host, NODE_READER, {}, [['network', 'true']])), [])
})

test("allocation statistics: 404 before 403, the allocation's own namespace, the task filter", async (context) => {
  const { alloc, id } = served(context)
  const answer = await call(alloc, JOB_READER, { alloc_id: id })
  assert.deepEqual(Object.keys(answer.Tasks), ['web', 'other'])
  const one = await call(alloc, JOB_READER, { alloc_id: id }, [['task', 'other']])
  assert.deepEqual(Object.keys(one.Tasks), ['other'])
  assert.deepEqual((await call(alloc, JOB_READER, { alloc_id: id }, [['task', 'nope']])).Tasks, {})
  await assert.rejects(call(alloc, ANYBODY, { alloc_id: id }), refusal('permission_denied', /^Permission denied$/))
  await assert.rejects(call(alloc, ANYBODY, { alloc_id: NODE }), refusal('not_found', /^Unknown allocation "/))
  await assert.rejects(call(alloc, ANYBODY, { alloc_id: 'abc' }), refusal('invalid_request', /36 characters/))
})

const JSON_FOR_ALL = { crossOrigin: ['GET', 'HEAD'], output: 'json', errorFormat: 'plain', target: 'node' }

test('both are plain JSON endpoints for any verb, open to other origins for reading', (context) => {
  const { host, alloc } = served(context)
  assert.deepEqual(host.http, ['* /v1/client/stats'])
  assert.deepEqual(alloc.http, ['* /v1/client/allocation/:alloc_id/stats'])
  for (const { crossOrigin, output, errorFormat, target } of [host, alloc]) {
    assert.deepEqual({ crossOrigin, output, errorFormat, target }, JSON_FOR_ALL)
  }
})
