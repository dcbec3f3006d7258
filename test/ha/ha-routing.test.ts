/** Requests that last while the active server changes: streams and long polls, through a standby and at the former active server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { rejectionOf, ScriptedCluster, type StreamReader } from '../helpers/ha-routing-cluster.ts'
import { Refusal } from '../../src/platform/errors.ts'
import { callOf } from '../host/allocations/host-fixture.ts'
import { eventually } from '../helpers/eventually.ts'

const FORMATS = { 'lines of JSON': {}, 'server-sent events': { accept: 'text/event-stream' } } as const

/** Waits until the reader has all events up to `last`; each must have arrived once, in order, in complete lines. */
async function received(reader: StreamReader, last: number): Promise<void> {
  await eventually(() => (reader.events().at(-1)?.sequence ?? 0) >= last, 'the events arrive')
  assert.deepEqual(
    reader.events().map(({ sequence }) => sequence),
    Array.from({ length: last }, (_, at) => at + 1),
  )
  assert.ok(reader.text().endsWith('\n'), 'an incomplete line')
}

for (const [format, headers] of Object.entries(FORMATS)) {
  for (const how of ['steps down', 'is killed', 'is sealed'] as const) {
    test(`a stream through a standby continues when the active server ${how}, ${format}`, async () => {
      const cluster = new ScriptedCluster(['a', 'b', 'c'])
      cluster.activate('a')
      const reader = await cluster.watch('c', headers)
      cluster.write(3)
      await received(reader, 3)
      cluster.end('a', how)
      cluster.write(2)
      await sleep(20)
      cluster.activate('b')
      cluster.write(2)
      await received(reader, 7)
      assert.equal(reader.isEnded, false)
      cluster.end('b', 'steps down')
      cluster.activate('c')
      cluster.write(1)
      await received(reader, 8)
      assert.deepEqual(cluster.servedBy, ['a', 'b', 'c'])
    })
  }

  test(`a stream at the former active server continues from the new one, ${format}`, async () => {
    const cluster = new ScriptedCluster(['a', 'b'])
    cluster.activate('a')
    const reader = await cluster.watch('a', headers)
    cluster.write(2)
    await received(reader, 2)
    cluster.end('a', 'steps down')
    cluster.write(1)
    cluster.activate('b')
    cluster.write(1)
    await received(reader, 4)
    assert.deepEqual(cluster.servedBy, ['a', 'b'])
  })

  test(`a repeated stream that is refused ends with the reason, ${format}`, async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'])
    cluster.activate('a')
    const reader = await cluster.watch('c', headers)
    cluster.write(1)
    await received(reader, 1)
    cluster.end('a', 'is killed')
    cluster.isRevoked = true
    cluster.activate('b')
    await eventually(() => reader.isEnded)
    assert.deepEqual([reader.error, reader.lastStatus()], [undefined, 403])
  })

  test(`a stream that ends for another reason is not repeated, ${format}`, async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'])
    cluster.activate('a')
    const reader = await cluster.watch('c', headers)
    cluster.write(1)
    await received(reader, 1)
    cluster.isRevoked = true
    cluster.write(1)
    await eventually(() => reader.isEnded)
    assert.deepEqual([reader.error, reader.lastStatus(), reader.events().length], [undefined, 403, 1])
    assert.deepEqual(cluster.servedBy, ['a'])
  })
}

test('events that were read before a pause of the active server are not passed on after it', async () => {
  const cluster = new ScriptedCluster(['a', 'b'])
  cluster.activate('a')
  const reader = await cluster.watch('a')
  cluster.write(1)
  await received(reader, 1)
  // The lease has run out, and this server does not know of the other one yet.
  cluster.member('a').isServing = false
  cluster.write(1)
  await sleep(250)
  assert.equal(reader.events().length, 1)
  cluster.end('a', 'steps down')
  cluster.activate('b')
  await received(reader, 2)
})

test('a stream within a commit of several changes continues after the change that was passed on', async () => {
  const cluster = new ScriptedCluster(['a', 'b', 'c'])
  cluster.activate('a')
  const reader = await cluster.watch('c', {}, [['cursor', '1-4.2']])
  await eventually(() => reader.text().includes('1-4.2'))
  cluster.end('a', 'is killed')
  cluster.activate('b')
  await eventually(() => cluster.cursors.length === 2)
  assert.deepEqual(cluster.cursors, ['1-4.2', '1-4.2'])
})

test('a long poll is repeated with its cursor and what is left of its time', async () => {
  for (const at of ['a', 'c']) {
    for (const how of ['steps down', 'is killed'] as const) {
      if (at === 'a' && how === 'is killed') continue
      const cluster = new ScriptedCluster(['a', 'b', 'c'])
      cluster.activate('a')
      const answer = cluster.poll(at, [
        ['cursor', '1-0'],
        ['wait', '10s'],
      ])
      await eventually(() => cluster.servedBy.length === 1)
      await sleep(600)
      cluster.end('a', how)
      await sleep(50)
      cluster.activate('b')
      await eventually(() => cluster.servedBy.length === 2)
      cluster.write(1)
      assert.deepEqual(await answer, { status: 200, events: [1] })
      assert.deepEqual(
        [cluster.cursors, cluster.waits],
        [
          ['1-0', '1-0'],
          ['10s', '9'],
        ],
      )
    }
  }
})

test('while the role of a server changes its core is not reported as sealed', async () => {
  const cluster = new ScriptedCluster(['a', 'b'])
  cluster.activate('a')
  cluster.member('a').phase = 'stepping down'
  cluster.member('a').isOpen = false
  const answer = cluster.poll('a', [['cursor', '1-0']])
  await sleep(50)
  cluster.end('a', 'steps down')
  cluster.activate('b')
  cluster.write(1)
  assert.deepEqual(await answer, { status: 200, events: [1] })
})

test('a stream whose reader has gone leaves nothing behind', async () => {
  const cluster = new ScriptedCluster(['a', 'b'])
  cluster.activate('a')
  for (const at of ['a', 'b']) {
    const reader = await cluster.watch(at)
    cluster.write(1)
    await eventually(() => reader.events().length === 1)
    reader.leave()
    await eventually(() => reader.isEnded)
    assert.equal(rejectionOf(reader.error), undefined)
  }
  assert.deepEqual([cluster.member('a').listeners.size, cluster.member('b').listeners.size], [0, 0])
})

test('an answer that was computed before a pause of the active server is not sent after it', async () => {
  const cluster = new ScriptedCluster(['a', 'b'])
  cluster.activate('a')
  const answer = cluster.poll('a')
  await eventually(() => cluster.servedBy.length === 1)
  // The lease has run out, and this server does not know of the other one yet.
  cluster.member('a').isServing = false
  cluster.write(1)
  await nextTurn()
  cluster.end('a', 'steps down')
  cluster.activate('b')
  await eventually(() => cluster.servedBy.length === 2)
  cluster.write(1)
  assert.deepEqual(await answer, { status: 200, events: [2] })
})

/** What becomes of a request that is executed while the active server changes. */
const CHANGES = [
  { what: 'a read', at: 'a', outcome: 'repeated' },
  { what: 'a read', at: 'c', outcome: 'repeated' },
  { what: 'a read that takes a use of its token', at: 'a', outcome: 'unknown' },
  { what: 'a read that takes a use of its token', at: 'c', outcome: 'unknown' },
  // The stream has acknowledged its commit.
  { what: 'a write', at: 'a', outcome: 'answered' },
  { what: 'a write', at: 'c', outcome: 'unknown' },
] as const

for (const { at, outcome, what } of CHANGES) {
  const where = at === 'a' ? 'the active server' : 'a standby'
  test(`${what} at ${where} is ${outcome} when the active server changes`, async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'])
    cluster.usesAreLimited = what.includes('use')
    cluster.activate('a')
    const answer = cluster.poll(at, [], what === 'a write' ? 'write' : 'operation')
    await eventually(() => cluster.servedBy.length === 1)
    if (at === 'a') {
      cluster.write(1)
      cluster.end('a', 'steps down')
    } else cluster.end('a', 'is killed')
    cluster.activate('b')
    if (outcome === 'repeated') {
      await eventually(() => cluster.servedBy.length === 2)
      cluster.write(1)
    }
    const { status, ...body } = (await answer) as { readonly status: number }
    assert.deepEqual(
      [status, cluster.servedBy],
      [outcome === 'unknown' ? 503 : 200, outcome === 'repeated' ? ['a', 'b'] : ['a']],
    )
    if (outcome === 'unknown') assert.match(JSON.stringify(body), /it is unknown whether it had an effect/)
  })
}

test('a snapshot through a standby is streamed from the active server, and is repeated until its first byte', async () => {
  const cluster = new ScriptedCluster(['a', 'b', 'c'])
  cluster.activate('a')
  assert.equal(await cluster.save('c'), 'snapshot of a')
  cluster.end('a', 'steps down')
  const saved = cluster.save('c')
  await sleep(50)
  cluster.activate('b')
  assert.equal(await saved, 'snapshot of b')
  assert.equal(await cluster.save('b'), 'snapshot of b')
})

test('the body of a restore through a standby is read once, by the active server', async () => {
  const cluster = new ScriptedCluster(['a', 'b', 'c'])
  // The standby does not know yet that the other server is not active any more.
  cluster.activate('a')
  cluster.member('a').isServing = false
  cluster.member('a').phase = 'standby'
  cluster.member('a').lease = { holder: undefined, term: 0 }
  const restored = cluster.restore('c', 'the entries')
  await sleep(150)
  cluster.activate('b')
  assert.deepEqual([await restored, cluster.restored], [undefined, ['b: the entries']])
})

test('a standby reads long bodies of known tokens only, and forwards no request without its body', async () => {
  const cluster = new ScriptedCluster(['a', 'b'])
  cluster.activate('a')
  const { operation } = cluster.member('b')
  assert.equal(operation.takesLongBody?.('known', undefined), true)
  for (const [token, code] of [
    ['s.new', 'unavailable'],
    [undefined, 'body_too_large'],
  ] as const) {
    assert.equal(operation.takesLongBody?.(token, undefined), false)
    const raw = { params: { path: 'secret/a' }, query: [], headers: {}, body: undefined, isBodyLeft: true } as const
    const answer = Promise.resolve(operation.run(raw, { ...callOf(), token, raw }, undefined))
    await assert.rejects(answer, (error) => error instanceof Refusal && error.code === code)
  }
  assert.deepEqual(cluster.servedBy, [])
  // A sealed server forwards nothing, and judges as without high availability.
  cluster.member('b').coreState = 'sealed'
  assert.equal(operation.takesLongBody?.('known', undefined), true)
})
