/**
 * An attacker with the key of a worker announces thousands of allocations in the job of another owner, and answers calls
 * for their logs without an end, with nothing or with as much as it can send. Without limits the logs of the job were
 * refused, or stopped, for all callers. Only its own lines may be affected.
 */
import '../helpers/short-pace.ts'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { NodeSlots } from '../../src/cluster/rpc/node-slots.ts'
import { Refusal } from '../../src/platform/errors.ts'
import type { AnyOperation, Call, Chunk, Operation } from '../../src/platform/operation.ts'
import { schema, pathParam } from '../../src/platform/schema.ts'
import { eventually } from '../helpers/eventually.ts'
import { allocationOf, idOf, nodeOf, startFleetServer } from '../helpers/fleet-server.ts'

const HOSTILE = idOf('bad00000')
const OWNER = idOf('600d0000')
/** In the order of IDs the attacker's come first. */
const made = (count: number) => Array.from({ length: count }, (_, serial) => idOf('0badbad0', serial))
const own = (count: number) => Array.from({ length: count }, (_, serial) => idOf('600d600d', serial))
const isOwn = (id: string) => id.startsWith('600d')

function frame(text: string): Buffer {
  return Buffer.from(`{"Data":"${btoa(text)}","File":"alloc/logs/web.stdout.0","Offset":${text.length}}`)
}

type Answer = (id: string, signal: AbortSignal) => AsyncIterable<Chunk>

/** What the nodes answer; the owner's say one line. */
function logsOf(hostile: Answer, owner: Answer = line): AnyOperation {
  const fields = { alloc_id: pathParam('') }
  const operation: Operation<{ alloc_id: string }, never> = {
    name: 'host.logs',
    summary: '',
    http: ['GET /v1/client/fs/logs/:alloc_id'],
    target: 'node',
    input: schema(fields),
    output: 'stream',
    errorFormat: 'plain',
    authorize: () => undefined,
    run: ({ alloc_id: id }, { signal }: Call) => (isOwn(id) ? owner : hostile)(id, signal),
  }
  return operation
}

async function* line(id: string): AsyncGenerator<Chunk> {
  yield { status: 200 }
  yield frame(`log of ${id}`)
}

const absent: Answer = () => {
  throw new Refusal('not_found', 'not started yet')
}

async function left(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

async function* silence(_id: string, signal: AbortSignal): AsyncGenerator<Chunk> {
  yield { status: 200 }
  await left(signal)
}

async function attacked(t: TestContext, logs: AnyOperation, counts: { made: number; own: number }) {
  const server = await startFleetServer(t, logs)
  const has = (node: string, ids: readonly string[]) =>
    server.say(
      nodeOf(node),
      ids.map((id) => allocationOf(id)),
    )
  has(OWNER, own(counts.own))
  has(HOSTILE, made(counts.made))
  const abort = new AbortController()
  t.after(() => abort.abort())
  const read = async (query: string) => {
    const answer = await fetch(`${server.url}/v1/job/web/logs?${query}`, { signal: abort.signal })
    const heard = { status: answer.status, bytes: 0, own: 0, lines: new Set<string>(), said: '', isOver: false }
    const take = async () => {
      let rest = ''
      for await (const bytes of answer.body ?? []) {
        heard.bytes += bytes.length
        const frames = (rest + Buffer.from(bytes).toString('latin1')).split('}')
        rest = frames.pop() ?? ''
        for (const text of frames) {
          const id = /"AllocID":"([^"]*)"/.exec(text)?.[1] ?? ''
          if (text.includes('"Error"')) heard.said += text
          if (!isOwn(id) || !text.includes('"Data"')) continue
          heard.own++
          heard.lines.add(id)
        }
      }
      heard.isOver = true
    }
    take().catch(() => undefined)
    return heard
  }
  return { read, has, leave: () => abort.abort() }
}

test('with thousands of hostile allocations in a job, the logs of the owner are followed, including later allocations', async (t) => {
  const { has, leave, read } = await attacked(t, logsOf(silence), { made: 9000, own: 900 })
  const heard = await read('follow=true')
  assert.equal(heard.status, 200)
  await eventually(() => heard.lines.size === 900, 'each line of the owner')
  await eventually(
    () => /7900 allocations of this host are not followed: at most 2000/.test(heard.said),
    'the limit is reported',
  )
  has(OWNER, own(990))
  await eventually(() => heard.lines.size === 990, 'those that come')
  leave()
})

test('responses that never end do not use slots of other nodes, and the stream ends without them', async (t) => {
  const { leave, read } = await attacked(t, logsOf(silence), { made: 100, own: 20 })
  const heard = await read('')
  await eventually(() => heard.lines.size === 20, 'each line of the owner')
  await eventually(() => heard.isOver, 'the end of the answer')
  assert.match(heard.said, /96 allocations of this host are not read: the node is too slow/)
  assert.equal(heard.said.match(/504 the node is too slow/g)?.length, 4)
  leave()
})

test('a node that sends as fast as it can gets no larger share than one that sends little', async (t) => {
  const much = Buffer.concat(Array.from({ length: 4 }, () => frame('x'.repeat(12_000))))
  const flood: Answer = async function* (_id, signal) {
    yield { status: 200 }
    while (!signal.aborted) yield much
  }
  const some: Answer = async function* () {
    yield { status: 200 }
    for (let at = 0; at < 50; at++) yield much
  }
  const { leave, read } = await attacked(t, logsOf(flood, some), { made: 300, own: 1 })
  const heard = await read('follow=true')
  await eventually(() => heard.own === 200, 'all that the owner has said')
  // By streams instead of by nodes each piece of the owner would wait for 300 of the others: 960 MB in all.
  assert.ok(heard.bytes < 100e6, `${heard.bytes} bytes for 3 MB`)
  leave()
})

test('an allocation that loses its slot while it waits for a retry ends with the reason', async (t) => {
  const { has, leave, read } = await attacked(t, logsOf(absent), { made: 2000, own: 0 })
  const heard = await read('follow=true')
  await eventually(() => heard.said.match(/404 not started yet/g)?.length === 2000, 'each was attempted')
  has(OWNER, own(100))
  await eventually(() => heard.lines.size === 100, 'the other node is followed')
  const reason =
    /"log failed","Error":"429 at most 2000 allocations of a job are followed at once[^{]*"AllocID":"0badbad0/g
  await eventually(() => heard.said.match(reason)?.length === 100, 'the reason for each lost slot')
  leave()
})

test('nodes that use at most an equal share of the slots keep their slots', () => {
  const shares = new NodeSlots({ slots: 100, slotsPerNode: 90 })
  const held = new Map<string, Set<() => void>>()
  const enter = (node: string, count: number) => {
    const leaves = held.get(node) ?? new Set()
    held.set(node, leaves)
    for (let at = 0; at < count; at++) {
      const slot = shares.acquire(node, () => leaves.delete(leave))
      const leave = () => {
        if (slot) shares.release(slot)
      }
      if (slot) leaves.add(leave)
    }
  }
  const counts = (...nodes: string[]) => nodes.map((node) => held.get(node)?.size ?? 0)
  enter('a', 500)
  assert.deepEqual(counts('a'), [90])
  enter('b', 30)
  enter('c', 30)
  assert.deepEqual(counts('a', 'b', 'c'), [40, 30, 30])
  enter('a', 500)
  assert.deepEqual(counts('a', 'b', 'c'), [40, 30, 30])
  for (const leave of held.get('b') ?? []) {
    leave()
    leave()
  }
  enter('d', 100)
  const [a = 0, c, d = 0] = counts('a', 'c', 'd')
  assert.deepEqual([a + d, c], [70, 30])
  assert.ok(Math.abs(a - d) <= 1)
})
