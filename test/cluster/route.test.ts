/** Routing of calls to nodes and servers, and refusals for unreachable ones. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ForwardedRequest } from '../../src/cluster/rpc/forwarder.ts'
import { type NodeDirectory, forwarded, relayed, routed } from '../../src/cluster/route.ts'
import { Refusal } from '../../src/platform/errors.ts'
import {
  admit,
  type AnyOperation,
  type Endpoint,
  JsonText,
  type Operation,
  type CallTarget,
} from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { callOf, identity, performed } from '../host/allocations/host-fixture.ts'

const OWN = '6f1c0b9e-2f0a-4a51-9d0c-000000000001'
const OTHER = '6f1c0b9e-2f0a-4a51-9d0c-000000000002'
const GONE = '6f1c0b9e-2f0a-4a51-9d0c-000000000003'
const ALLOC = '6f1c0b9e-2f0a-4a51-9d0c-00000000000a'

const directory: NodeDirectory = {
  ownNodeId: OWN,
  hasAllocation: (id) => id === ALLOC,
  allocation: (id) =>
    ({ 'a-other': { nodeId: OTHER, namespace: 'apps' }, 'a-gone': { nodeId: GONE, namespace: 'apps' } })[id],
  nodeState: (id) => ({ [OTHER]: 'ready' as const, [GONE]: 'down' as const })[id],
  canAsk: false,
}

/** An operation at `place` that says where it ran, and what was handed on. */
function serve(place: CallTarget, over: Partial<NodeDirectory> = {}) {
  const handed: ForwardedRequest[] = []
  const operation: Operation<Record<string, never>, unknown> = {
    name: 'test.value',
    summary: '',
    http: ['GET /v1/value'],
    target: 'node',
    input: schema({}),
    output: 'json',
    errorFormat: 'plain',
    locate: () => place,
    authorize(_input, caller) {
      if (!caller.allowsNode('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
    run: async () => 'here',
  }
  const forwarding = {
    async answer(request: ForwardedRequest) {
      handed.push(request)
      return new JsonText('"there"')
    },
    wholeOrStreamed: () => assert.fail('nothing is made whole here'),
    // oxlint-disable-next-line require-yield -- nothing streams here
    async *stream() {
      throw new Error('not a stream')
    },
  }
  const wrapped: AnyOperation = routed(operation, { ...directory, ...over }, forwarding)
  return { wrapped, handed }
}

test('a call for this node runs here, and a call for another node is forwarded with input, caller and hops', async () => {
  for (const place of [{ nodeId: undefined }, { nodeId: OWN }, { allocationId: ALLOC }, { allocationId: 'unknown' }]) {
    const { wrapped, handed } = serve(place)
    assert.equal(await performed(wrapped, {}, callOf(identity('node:read'))), 'here')
    assert.equal(handed.length, 0)
  }
  for (const place of [{ nodeId: OTHER }, { allocationId: 'a-other' }]) {
    const { wrapped, handed } = serve(place)
    const call = { ...callOf(identity('node:read')), token: 't', hops: 1, remote: '10.0.0.1' }
    const value = await performed(wrapped, {}, call)
    assert.ok(value instanceof JsonText && value.text === '"there"')
    const [request] = handed
    assert.ok(request?.nodeId === OTHER)
    const namespaces = 'allocationId' in place ? ['apps'] : []
    assert.deepEqual(
      [request.operation, request.identity, request.namespaces, request.hops, request.input],
      ['test.value', call.identity, namespaces, 1, call.raw],
    )
    assert.ok(!('token' in request) && !('remote' in request), 'a node gets neither token nor address')
  }
})

test('the caller is authorized before a call is forwarded', () => {
  const { wrapped } = serve({ nodeId: OTHER })
  assert.throws(() => admit(wrapped, {}, identity()), { code: 'permission_denied' })
})

test('a call to an unreachable node is refused at once', () => {
  const cases: [CallTarget, Partial<NodeDirectory>, string, string][] = [
    [{ nodeId: undefined }, { ownNodeId: undefined }, 'invalid_request', 'No local Node and node_id not provided'],
    [{ nodeId: 'short' }, {}, 'invalid_request', 'node lookup failed'],
    [{ nodeId: ALLOC }, {}, 'not_found', `Unknown node ${ALLOC}`],
    [{ nodeId: GONE }, {}, 'not_found', 'No path to node'],
    [{ allocationId: 'a-gone' }, {}, 'not_found', 'No path to node'],
  ]
  for (const [place, over, code, text] of cases) {
    const { wrapped } = serve(place, over)
    assert.throws(
      () => void performed(wrapped, {}),
      (error: Refusal) => error.code === code && error.message.startsWith(text),
    )
  }
  const { wrapped } = serve({ nodeId: OTHER })
  assert.throws(() => void performed(wrapped, {}, { ...callOf(), hops: 3 }), { message: 'No path to node' })
})

test('a process without a roster forwards calls for other nodes to any server', async () => {
  const known = { allocation: () => undefined, nodeState: () => undefined, canAsk: true }
  for (const place of [{ nodeId: OTHER }, { allocationId: OTHER }]) {
    const { wrapped, handed } = serve(place, known)
    await performed(wrapped, {}, callOf(identity()))
    assert.equal(handed.length, 1)
    assert.equal(handed[0]?.nodeId, undefined)
  }
  for (const place of [{ nodeId: OWN }, { allocationId: ALLOC }, { allocationId: 'short' }]) {
    assert.equal(await performed(serve(place, known).wrapped, {}), 'here')
  }
})

test('an endpoint of servers is forwarded to any server by a process without a roster, and authorized there', async () => {
  const handed: ForwardedRequest[] = []
  const operation: Operation<Record<string, never>, unknown> = {
    name: 'server.thing',
    summary: '',
    http: ['GET /v1/thing'],
    target: 'server',
    input: schema({}),
    output: 'json',
    errorFormat: 'plain',
    authorize() {
      throw new Refusal('permission_denied', 'Permission denied')
    },
    run: async () => 'here',
  }
  const asked = relayed(operation, {
    async answer(request) {
      handed.push(request)
      return new JsonText('"there"')
    },
    wholeOrStreamed: () => assert.fail('nothing is made whole here'),
    stream: () => assert.fail('nothing streams here'),
  })
  const value = await performed(asked, {}, { ...callOf(identity()), token: 't' })
  assert.ok(value instanceof JsonText && value.text === '"there"')
  const [request] = handed
  assert.ok(request?.nodeId === undefined)
  assert.deepEqual([request?.operation, request?.token], ['server.thing', 't'])
})

test('a server without a node looks the destination up once, authorizes the caller and forwards the call', async () => {
  const handed: ForwardedRequest[] = []
  const looked: string[] = []
  const endpoint: Endpoint<{ readonly id: string }, { readonly namespace: string }> = {
    name: 'test.file',
    summary: '',
    http: ['GET /v1/file/:id'],
    target: 'node',
    input: { fields: {}, parse: (raw) => ({ id: raw.params['id'] ?? '' }) },
    output: 'json',
    errorFormat: 'plain',
    locate: ({ id }) => ({ allocationId: id }),
    authorize(_input, caller, { namespace }) {
      if (!caller.allowsNamespace(namespace, 'read-fs')) throw new Refusal('permission_denied', 'Permission denied')
    },
  }
  const counting: NodeDirectory = {
    ...directory,
    ownNodeId: undefined,
    hasAllocation: () => false,
    allocation(id) {
      looked.push(id)
      return directory.allocation(id)
    },
  }
  const operation = forwarded(endpoint, counting, {
    async answer(request) {
      handed.push(request)
      return new JsonText('"there"')
    },
    wholeOrStreamed: () => assert.fail('nothing is made whole here'),
    stream: () => assert.fail('nothing streams here'),
  })
  const value = await performed(operation, { id: 'a-other' }, callOf(identity('apps:read-fs')))
  assert.ok(value instanceof JsonText && value.text === '"there"')
  const [request] = handed
  assert.ok(request?.nodeId === OTHER)
  assert.deepEqual([looked, request.namespaces], [['a-other'], ['apps']])
  const refused = (id: string, code: string) =>
    assert.throws(() => void performed(operation, { id }, callOf(identity())), { code })
  refused('a-other', 'permission_denied')
  refused(ALLOC, 'not_found')
  refused('short', 'invalid_request')
  assert.equal(handed.length, 1)
})
