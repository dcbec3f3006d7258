/**
 * The threads that match patterns: what happens when one dies, when callers leave, and when many come at once.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { LineFilter } from '../../../../src/host/logs/search/line-filter.ts'
import { LineMatcher, LineMatchers } from '../../../../src/host/logs/search/line-matchers.ts'
import { compileLinePattern } from '../../../../src/host/logs/search/line-pattern.ts'
import { Fault } from '../../../../src/platform/errors.ts'
import { eventually } from '../../../helpers/eventually.ts'

/** Rebuilds the state table at nearly every byte, the slowest case of the engine. */
const SLOW = '[ab]*a[ab]{300}[cd]'
/** The same with a smaller table: a load takes milliseconds. */
const LESS_SLOW = '[ab]*a[ab]{60}[cd]'

/** The least that a thread gets at once; the first load of a pattern is larger, and costs seconds with the slow one. */
const LOAD_BYTES = 4096

/** Lines and blocks are so many times as long as the suite has time for. */
const SCALE = Number(process.env['OUTPOST_MATCH_SCALE'] ?? 1)
const LINE_BYTES = 6000 * SCALE
const BLOCK_ROUNDS = 1000 * SCALE

/** Another `seed`, another line: what is known of one is of no use for the next. */
function randomLine(bytes: number, seed = 1): Buffer {
  const line = Buffer.alloc(bytes)
  let state = seed
  for (let at = 0; at < bytes; at++) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    line[at] = state & 0x1_0000 ? 97 : 98
  }
  return line
}

/** Turns of the event loop while a promise is pending: as many as there can be, or one in a while, which costs nothing. */
async function turnsDuring<T>(
  promise: Promise<T>,
  next: () => Promise<void> = turn,
): Promise<{ turns: number; value: T }> {
  const state = { pending: true }
  const settled = promise.finally(() => {
    state.pending = false
  })
  let turns = 0
  while (state.pending) {
    await next()
    turns++
  }
  return { turns, value: await settled }
}

test('patterns with exponential time in other engines end and do not block the event loop', async () => {
  const line = randomLine(LINE_BYTES)
  for (const text of [
    '(a|a)*c',
    '(x+x+)+y',
    '((a{0,10}){0,10}){0,10}c',
    '(?:a?){400}a{400}[cd]',
    '([ab]+)*[cd]$',
    SLOW,
  ]) {
    const matcher = new LineMatcher(text, new LineMatchers({ idleTimeoutMs: 1 }))
    const asked = matcher.match([line, Buffer.alloc(LINE_BYTES, 'x'), Buffer.from('aac')])
    const { turns, value } = await turnsDuring(asked, () => delay(1))
    assert.equal(value?.length, 3, text)
    assert.deepEqual([...(value?.[0] ?? [])], [], text)
    assert.ok(turns > 1, `${text}: ${turns} turns`)
  }
})

test('a literal is searched in time slices', async () => {
  const filter = new LineFilter<string>({ pattern: compileLinePattern('needle'), invert: false, context: 0 })
  const line = Buffer.from(`${'x'.repeat(98)}\n`)
  const data = Buffer.alloc(64 << 20, line)
  data.write('needle', 99 * 1000)
  const pushed = filter.push(data, 'a', 0)
  assert.ok(pushed instanceof Promise)
  const { turns, value } = await turnsDuring(pushed)
  assert.equal(value.length, 1)
  assert.equal(value[0]?.end, 99 * 1001)
  assert.ok(turns > 5, `${turns} turns`)
})

test('the death of a thread fails its jobs, and the next job gets a new thread', async () => {
  const workers: Worker[] = []
  const onWorker = (worker: Worker) => void workers.push(worker)
  process.on('worker', onWorker)
  try {
    const matchers = new LineMatchers()
    const slow = new LineMatcher(SLOW, matchers)
    slow.batchBytes = LOAD_BYTES
    const lines = Array.from({ length: 100 }, (_, at) => randomLine(LOAD_BYTES, at + 1))
    const asked = slow.match(lines)
    await eventually(() => matchers.counts.workers === 2 && workers.length === 2)
    assert.ok(matchers.counts.running > 0)
    await Promise.all([workers[0]?.terminate(), assert.rejects(asked, Fault)])
    const quick = new LineMatcher('a+c', matchers)
    assert.deepEqual(await quick.match([Buffer.from('b\naac\n')]), [Uint32Array.of(2, 6)])
    await eventually(() => matchers.counts.running === 0)
    await Promise.all(workers.map((worker) => worker.terminate()))
  } finally {
    process.off('worker', onWorker)
  }
})

test('closed jobs are not run, and queued jobs have no slot', async () => {
  const matchers = new LineMatchers({ idleTimeoutMs: 50 })
  const lines = Array.from({ length: 20 }, () => randomLine(5000))
  const askers = Array.from({ length: 200 }, (_, index) => new LineMatcher(`${LESS_SLOW}|${index}x`, matchers))
  const asked = askers.map((asker) => asker.match(lines))
  assert.ok(matchers.counts.queued >= 196, JSON.stringify(matchers.counts))
  assert.ok(matchers.counts.running <= 4 && matchers.counts.workers <= 2, JSON.stringify(matchers.counts))
  for (const asker of askers) asker.close()
  assert.equal(matchers.counts.queued, 0)
  assert.deepEqual(new Set(await Promise.all(asked)), new Set([undefined]))
  // Idle threads end by themselves.
  await eventually(() => matchers.counts.workers === 0)
})

test('a fast pattern runs between the batches of slow ones', async () => {
  const matchers = new LineMatchers({ idleTimeoutMs: 50 })
  const lines = Array.from({ length: 150 }, (_, at) => randomLine(LOAD_BYTES, at + 1))
  const slow = Array.from({ length: 3 }, (_, index) => new LineMatcher(`${LESS_SLOW}|${index}x`, matchers))
  for (const each of slow) each.batchBytes = LOAD_BYTES
  let over = 0
  const all = Promise.all(slow.map((asker) => asker.match(lines).finally(() => over++)))
  const quick = new LineMatcher('b+', matchers)
  for (let round = 0; round < 3; round++) {
    assert.deepEqual(await quick.match([Buffer.from('a\nb')]), [Uint32Array.of(2, 3)])
  }
  assert.equal(over, 0)
  for (const asker of slow) asker.close()
  await all
})

test('matches of a block that is split into batches are complete', async () => {
  const matchers = new LineMatchers({ idleTimeoutMs: 50 })
  const asker = new LineMatcher('^(?:b|[a-z]{4})$', matchers)
  const block = Buffer.from('a\nb\nlong\n'.repeat(BLOCK_ROUNDS))
  const want = Array.from({ length: BLOCK_ROUNDS }, (_, index) => [index * 9 + 2, index * 9 + 9]).flat()
  for (const batchBytes of [1, 7, 100, 5000, LINE_BYTES]) {
    asker.batchBytes = batchBytes
    const found = await asker.match([block, Buffer.from('b'), block])
    assert.deepEqual(
      found?.map((stretches) => [...stretches]),
      [want, [0, 1], want],
    )
  }
})

test('a closed filter outputs nothing', async () => {
  const filter = new LineFilter<string>({ pattern: compileLinePattern('a+'), invert: false, context: 0 })
  const pushed = filter.push(Buffer.from('a\n'), 'a', 0)
  filter.close()
  assert.deepEqual(await pushed, [])
})

test('one thread does all work if no more can be started, and without any a Fault is thrown', async () => {
  let left = 0
  const startWorker = () => {
    if (left-- <= 0) throw new Error('ERR_WORKER_INIT_FAILED: EAGAIN')
    return new Worker(new URL('../../../../src/host/logs/search/line-matcher-worker.ts', import.meta.url))
  }
  const matchers = new LineMatchers({ idleTimeoutMs: 1, startWorker })
  const ask = () => new LineMatcher('x.z', matchers).match([Buffer.from('a\nxyz\n')])
  await assert.rejects(ask(), { name: 'Fault', message: /could not be started: ERR_WORKER_INIT_FAILED/ })
  assert.deepEqual(matchers.counts, { workers: 0, running: 0, queued: 0 })
  left = 1
  const found = await Promise.all(Array.from({ length: 20 }, ask))
  assert.ok(found.every((blocks) => blocks?.[0]?.join() === '2,6'))
  await eventually(() => matchers.counts.workers === 0)
})
