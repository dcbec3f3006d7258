import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { type DiskSteps, diskSteps } from '../../../src/platform/program-file.ts'
import { parseMetadataBody } from '../../../src/host/node/metadata-body.ts'
import {
  type MetadataView,
  NodeMetadata,
  builtInMeta,
  metadataApply,
  metadataRead,
} from '../../../src/host/node/metadata.ts'
import { HostState } from '../../../src/host/node/state.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { admit, type Identity } from '../../../src/platform/operation.ts'
import { callOf, identity, recordingLogger, performed, root } from '../allocations/host-fixture.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const STATIC = { rack: 'r1', role: 'edge', 'odd key': 'static keys follow a looser rule' }

async function node(
  t: TestContext,
  options: { stateDir?: string; fixed?: Record<string, string>; steps?: DiskSteps } = {},
) {
  const log = recordingLogger()
  const { stateDir = temporaryDirectory(t), fixed = STATIC, steps = diskSteps } = options
  const state = await HostState.open({ stateDir, log, steps })
  const metadata = await NodeMetadata.open({ state, staticMeta: fixed, log })
  const parts = { metadata, nodeId: state.nodeId }
  const [read, apply] = [metadataRead.in(parts), metadataApply.in(parts)]
  /** As a transport does it: parse, authorize, run. */
  const post = async (body: string | undefined, query: [string, string][] = [], caller: Identity = root) => {
    const input = apply.input.parse({ params: {}, query, headers: {}, body })
    await performed(apply, input, callOf(caller))
    return metadata.view()
  }
  return { state, stateDir, metadata, read, apply, post }
}

function refusal(status: number, message: string | RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof Refusal, String(error))
    assert.equal(error.status, status)
    if (typeof message === 'string') assert.equal(error.message, message)
    else assert.match(error.message, message)
    return true
  }
}

test('a new node has its static and built-in keys', async (t) => {
  const fixed = builtInMeta('1.2.3')
  const { metadata } = await node(t, { fixed })
  assert.ok(Object.keys(fixed).length > 1)
  assert.deepEqual(metadata.view(), { Dynamic: {}, Meta: fixed, Static: fixed })
})

test('the recorded sequence of sets and unsets gives the recorded responses', async (t) => {
  const { post } = await node(t)
  const dynamic = async (body: object) => (await post(JSON.stringify(body))).Dynamic
  assert.deepEqual(await dynamic({ Meta: { a: '1', 'b.c': '2', 'dots.are_ok-too': '', _x: 'ü' } }), {
    a: '1',
    'b.c': '2',
    'dots.are_ok-too': '',
    _x: 'ü',
  })
  await dynamic({ Meta: { 'b.c': null, 'dots.are_ok-too': null, _x: null } })
  assert.deepEqual(await dynamic({ Meta: { rack: 'dyn' } }), { a: '1', rack: 'dyn' })
  assert.deepEqual(await dynamic({ Meta: { a: null } }), { rack: 'dyn' })
  assert.deepEqual(await dynamic({ Meta: { rack: null } }), { rack: null })
  assert.deepEqual(await dynamic({ Meta: { neverset: null } }), { rack: null })
  const view = await post('{"Meta":{"role":null,"m":"n"}}')
  assert.deepEqual(view.Meta, { 'odd key': STATIC['odd key'], m: 'n' })
  assert.deepEqual(view.Static, STATIC)
  assert.deepEqual(await dynamic({ Meta: { rack: 'r1' } }), { rack: 'r1', role: null, m: 'n' })
})

test('an update with one invalid key is refused as a whole', async (t) => {
  const { post, metadata } = await node(t)
  for (const key of ['*', 'a/b', ' a', '.a', 'a.', 'a..b', 'a.-b', '1a', 'a.1b', '-a', '😀', 'a"b', 'a\n']) {
    const expected = `${JSON.stringify(key)} is invalid; metadata keys must be valid dotted hcl identifiers`
    await assert.rejects(post(JSON.stringify({ Meta: { good: 'x', [key]: 'v' } })), refusal(400, expected), key)
  }
  await assert.rejects(post('{"Meta":{"":"v"}}'), refusal(400, 'metadata keys must not be empty'))
  assert.deepEqual(metadata.view().Dynamic, {})
  const good = ['é', '日本', 'a\u0301', 'k'.repeat(300), '__proto__', 'a-.b_']
  const view = await post(`{"Meta":{${good.map((key) => `${JSON.stringify(key)}:"v"`).join()}}}`)
  assert.deepEqual(
    Object.keys(view.Meta).filter((key) => !Object.hasOwn(STATIC, key)),
    good,
  )
})

test('bodies are parsed as Nomad does and never quoted in errors', async (t) => {
  const { post, state } = await node(t)
  const bad: [string | undefined, string][] = [
    [undefined, 'Request body is empty'],
    ['', 'EOF'],
    [' \n', 'EOF'],
    ['{"Meta":', 'unexpected EOF'],
    ['{"Meta":{"a":"PLANTED', 'unexpected EOF'],
    ['{"Meta":{"a":"PLANTED\\"}}', 'unexpected EOF'],
    ['PLANTED', 'json: the body is not valid JSON'],
    ['{"Meta":{"a":PLANTED}}', 'json: the body is not valid JSON'],
    ['}', 'json: the body is not valid JSON'],
    ['{}', 'missing required Meta object'],
    ['{"Meta":{}}', 'missing required Meta object'],
    ['{"Meta":null}', 'missing required Meta object'],
    ['null', 'missing required Meta object'],
    ['[]', 'json: the body must be an object, not array'],
    ['"PLANTED"', 'json: the body must be an object, not string'],
    ['7', 'json: the body must be an object, not number'],
    ['{"Meta":"PLANTED"}', 'json: Meta must be an object of strings and nulls, not string'],
    ['{"Meta":{"a":1}}', 'json: a value in Meta must be a string or null, not number'],
    ['{"Meta":{"a":true}}', 'json: a value in Meta must be a string or null, not bool'],
    ['{"Meta":{"a":{}}}', 'json: a value in Meta must be a string or null, not object'],
    ['{"NodeID":7,"Meta":{"a":"1"}}', 'json: NodeID must be a string, not number'],
  ]
  for (const [body, message] of bad) await assert.rejects(post(body), refusal(400, message), String(body))
  assert.deepEqual((await post('{"meta":{"lc":"1"}}\n')).Dynamic, { lc: '1' })
  assert.equal((await post('{"Meta":{"lc":"2"},"Foo":1} junk')).Dynamic.lc, '2')
  assert.equal((await post('{"Meta":{"lc":"2","lc":"3"}}')).Dynamic.lc, '3')
  assert.equal((await post('{"Meta":{"lc":"\\ud800"}}')).Dynamic.lc, '\ufffd')
  assert.equal((await post(`{"nodeid":"${state.nodeId}","META":{"lc":"}]\\"{"}}`)).Dynamic.lc, '}]"{')
  assert.throws(() => parseMetadataBody('['.repeat(500_000)), refusal(400, 'unexpected EOF'))
})

test('node_id of the query takes precedence over the body, and other nodes are unknown', async (t) => {
  const { post, state, read } = await node(t)
  const other = '11111111-2222-3333-4444-555555555555'
  const own: [string, string] = ['node_id', state.nodeId]
  await assert.rejects(post(`{"NodeID":"${other}","Meta":{"a":"1"}}`), refusal(404, `Unknown node ${other}`))
  await assert.rejects(post('{"Meta":{"a":"1"}}', [['node_id', other]]), refusal(404, `Unknown node ${other}`))
  await assert.rejects(post('{"NodeID":"xyz","Meta":{"a":"1"}}'), refusal(400, /node lookup failed/))
  assert.equal((await post(`{"NodeID":"${other}","Meta":{"a":"2"}}`, [own])).Dynamic.a, '2')
  const input = read.input.parse({ params: {}, query: [['node_id', other]], headers: {}, body: undefined })
  assert.throws(() => admit(read, input, root), refusal(404, `Unknown node ${other}`))
})

test('GET needs read and POST needs write, checked after parsing and before validation', async (t) => {
  const { post, read } = await node(t)
  const reader = identity('node:read')
  const input = read.input.parse({ params: {}, query: [], headers: {}, body: undefined })
  admit(read, input, reader)
  assert.throws(() => admit(read, input, identity('node:write')), refusal(403, 'Permission denied'))
  await assert.rejects(post('{"Meta":{"*":"v"}}', [], reader), refusal(403, 'Permission denied'))
  await assert.rejects(post('{"Meta":', [], reader), refusal(400, 'unexpected EOF'))
  await assert.rejects(post('{"Meta":{"*":"v"}}', [], identity('node:write')), refusal(400, /is invalid/))
})

const manyKeys = (n: number) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`k${i}`, '']))

test('value length, number of keys and total bytes are limited', async (t) => {
  const { post, metadata } = await node(t)
  await assert.rejects(
    post(JSON.stringify({ Meta: { a: 'x'.repeat(65537) } })),
    refusal(400, /longer than 65536 bytes/),
  )
  await post(JSON.stringify({ Meta: { a: 'x'.repeat(65536) } }))
  await post(JSON.stringify({ Meta: manyKeys(9_999) }))
  await assert.rejects(post('{"Meta":{"oneMore":"1"}}'), refusal(400, /at most 10000/))
  assert.equal(Object.keys(metadata.view().Dynamic).length, 10_000)
  const text = JSON.stringify({ Meta: manyKeys(10_100) })
  await assert.rejects(
    post(text),
    refusal(400, 'json: the body has more than 10100 names: split it into several requests'),
  )
  const large = Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`k${i}`, 'y'.repeat(65536)]))
  await assert.rejects(post(JSON.stringify({ Meta: large })), refusal(400, /at most 524288 bytes/))
  assert.equal(metadata.view().Dynamic.k0, '')
})

test('a write that fails changes nothing and the next one works', async (t) => {
  let full = false
  const create: DiskSteps['create'] = (path, text) =>
    full ? Promise.reject(Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' })) : diskSteps.create(path, text)
  const { post, metadata } = await node(t, { steps: { ...diskSteps, create } })
  let changes = 0
  metadata.onChange(() => changes++)
  await post('{"Meta":{"a":"1"}}')
  full = true
  await assert.rejects(post('{"Meta":{"a":"2"}}'), /ENOSPC/)
  assert.equal(metadata.view().Meta.a, '1')
  full = false
  await post('{"Meta":{"a":"3"}}')
  assert.equal(changes, 2)
})

/** The rules once more, as naively as possible. */
class Model {
  dynamic: Record<string, string | null> = {}
  fixed: Record<string, string> = {}
  restart(fixed: Record<string, string>): void {
    this.fixed = fixed
    for (const key of Object.keys(this.dynamic))
      if (this.dynamic[key] === null && !(key in fixed)) delete this.dynamic[key]
  }
  post(patch: Record<string, string | null>): void {
    for (const [key, value] of Object.entries(patch)) {
      if (value !== null || key in this.fixed) this.dynamic[key] = value
      else delete this.dynamic[key]
    }
  }
  view(): MetadataView {
    const meta: Record<string, string> = { ...this.fixed }
    for (const [key, value] of Object.entries(this.dynamic)) {
      if (value === null) delete meta[key]
      else meta[key] = value
    }
    return { Dynamic: this.dynamic, Meta: meta, Static: this.fixed }
  }
}

test('any sequence of updates and restarts agrees with a naive model', async (t) => {
  const keys = ['a', 'b', 'c.d', 'e', 'f']
  let seed = 42
  const random = (below: number) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
    return Math.floor((seed / 2 ** 32) * below)
  }
  const pick = <T>(value: (key: string) => T) => {
    const chosen = keys.filter(() => random(2) === 0)
    return Object.fromEntries(chosen.map((key) => [key, value(key)]))
  }
  for (let round = 0; round < 10; round++) {
    const model = new Model()
    model.restart(pick(() => `s${random(3)}`))
    let current = await node(t, { fixed: model.fixed })
    for (let step = 0; step < 40; step++) {
      if (random(6) === 0) {
        model.restart(pick(() => `s${random(3)}`))
        current = await node(t, { stateDir: current.stateDir, fixed: model.fixed })
      } else {
        const patch = pick(() => (random(3) === 0 ? null : (['', 'v', 'w'][random(3)] ?? '')))
        if (Object.keys(patch).length === 0) continue
        model.post(patch)
        await current.post(JSON.stringify({ Meta: patch }))
      }
      assert.deepEqual(current.metadata.view(), model.view())
    }
  }
})

test('concurrent updates are all applied, and each response has its own', async (t) => {
  const { metadata, stateDir } = await node(t)
  const views = await Promise.all(
    Array.from({ length: 100 }, (_, i) =>
      metadata.apply(
        new Map([
          [`k${i}`, String(i)],
          ['last', String(i)],
        ]),
      ),
    ),
  )
  views.forEach((view, i) => assert.deepEqual([view.Dynamic[`k${i}`], view.Dynamic.last], [String(i), String(i)]))
  const again = await node(t, { stateDir })
  assert.equal(Object.keys(again.metadata.view().Dynamic).length, 101)
})
