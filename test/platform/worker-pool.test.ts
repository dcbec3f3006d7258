/** The worker pool, with workers and timers that move only when a test moves them. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import {
  RoundRobinQueue,
  WorkerPool,
  type WorkerPoolOptions,
  type WorkerTask,
  WorkerTaskError,
  type WorkerTaskErrorReason,
} from '../../src/platform/worker-pool.ts'
import { FakeWorker } from '../helpers/fake-worker.ts'

const IDLE_MS = 1000
const TASK_MS = 5000
const QUEUE_MS = 3000

type Outcome = 'pending' | 'done' | 'wrong response' | 'prepare failed' | WorkerTaskErrorReason

class PoolWorld {
  readonly workers: FakeWorker[] = []
  readonly outcomes = new Map<string, Outcome>()
  readonly pool: WorkerPool<string, string>
  startFailure: Error | undefined

  constructor(t: TestContext, options: Partial<WorkerPoolOptions> = {}) {
    t.mock.timers.enable({ apis: ['setTimeout'] })
    this.pool = new WorkerPool({
      threadName: 'outpost-test',
      name: 'test',
      url: new URL('file:///nowhere'),
      workersMax: 2,
      queueMax: 8,
      queueTimeoutMs: QUEUE_MS,
      taskTimeoutMs: TASK_MS,
      idleTimeoutMs: IDLE_MS,
      startWorker: () => {
        if (this.startFailure) throw this.startFailure
        const worker = new FakeWorker()
        this.workers.push(worker)
        return worker
      },
      ...options,
    })
  }

  run(name: string, task: Partial<WorkerTask<string>> = {}): void {
    assert.ok(!this.outcomes.has(name))
    this.outcomes.set(name, 'pending')
    const settle = (outcome: Outcome) => {
      assert.equal(this.outcomes.get(name), 'pending', `${name} settled twice`)
      this.outcomes.set(name, outcome)
    }
    const response = this.pool.run({ prepare: () => ({ request: name }), ...task })
    void response.then(
      (text) => settle(text === name ? 'done' : 'wrong response'),
      (error: unknown) => settle(error instanceof WorkerTaskError ? error.reason : 'prepare failed'),
    )
  }

  get live(): FakeWorker[] {
    return this.workers.filter(({ hasExited }) => !hasExited)
  }

  /** Answers all tasks, with the queue's, and lets terminated workers exit. */
  async drain(): Promise<void> {
    for (let round = 0; round === 0 || this.pool.counts.running + this.pool.counts.queued > 0; round++) {
      assert.ok(round < 1000, 'a task is lost')
      for (const worker of this.live) {
        if (worker.isTerminated) worker.exit()
        else worker.answer()
      }
      await turn()
    }
  }

  outcomesOf(...names: string[]): (Outcome | undefined)[] {
    return names.map((name) => this.outcomes.get(name))
  }
}

test('a task submitted at the moment of the idle timeout is done by another worker', async (t) => {
  const world = new PoolWorld(t, { workersMax: 1 })
  world.run('first')
  world.workers[0]?.answer()
  assert.deepEqual([world.workers[0]?.isReferenced, world.workers[0]?.isTerminated], [false, false])
  t.mock.timers.tick(IDLE_MS)
  assert.equal(world.workers[0]?.isTerminated, true)
  world.run('second')
  assert.deepEqual(world.pool.counts, { workers: 1, running: 0, queued: 1 }, 'a worker that ends counts until it exits')
  assert.equal(world.workers[0]?.isReferenced, true, 'the queued task keeps the process alive')
  await world.drain()
  assert.deepEqual(world.outcomesOf('first', 'second'), ['done', 'done'])
  assert.deepEqual([world.workers.length, world.workers.flatMap(({ violations }) => violations)], [2, []])
})

test('a task within the idle timeout is done by the same worker, whose timeout begins again', async (t) => {
  const world = new PoolWorld(t)
  for (const name of ['a', 'b', 'c']) {
    world.run(name)
    t.mock.timers.tick(IDLE_MS)
    await world.drain()
    t.mock.timers.tick(IDLE_MS - 1)
  }
  assert.deepEqual([world.workers.length, world.workers[0]?.isTerminated], [1, false])
})

test('a task that takes too long is rejected, and its worker is replaced', async (t) => {
  const world = new PoolWorld(t, { workersMax: 1, queueTimeoutMs: 10 * TASK_MS })
  world.run('slow')
  world.run('next')
  t.mock.timers.tick(TASK_MS)
  await turn()
  assert.deepEqual(world.outcomesOf('slow', 'next'), ['task-timeout', 'pending'])
  world.workers[0]?.answer()
  await world.drain()
  assert.deepEqual(world.outcomesOf('slow', 'next'), ['task-timeout', 'done'])
})

test('a worker that dies rejects only the tasks that it has', async (t) => {
  const world = new PoolWorld(t, { tasksPerWorkerMax: 2 })
  for (const name of ['a', 'b', 'c', 'd', 'e']) world.run(name)
  const [first, second] = world.workers
  assert.deepEqual(
    [first?.tasks.map(({ request }) => request), second?.tasks.map(({ request }) => request)],
    [
      ['a', 'c'],
      ['b', 'd'],
    ],
  )
  first?.exit(Object.assign(new Error('heap limit'), { code: 'ERR_WORKER_OUT_OF_MEMORY' }))
  second?.exit()
  await world.drain()
  assert.deepEqual(world.outcomesOf('a', 'c', 'b', 'd', 'e'), [
    'out-of-memory',
    'out-of-memory',
    'worker-died',
    'worker-died',
    'done',
  ])
})

test('queued tasks are rejected when their deadline passes, their signal aborts, or the pool closes', async (t) => {
  const world = new PoolWorld(t, { workersMax: 1 })
  const controller = new AbortController()
  world.run('running')
  world.run('cancelled', { signal: controller.signal })
  world.run('late')
  controller.abort()
  world.run('canceled before', { signal: controller.signal })
  t.mock.timers.tick(QUEUE_MS)
  world.run('queued')
  const closed = world.pool.close()
  world.run('after')
  await turn()
  assert.deepEqual(world.outcomesOf('cancelled', 'canceled before', 'late'), [
    'cancelled',
    'cancelled',
    'queue-timeout',
  ])
  assert.deepEqual(world.outcomesOf('running', 'queued', 'after'), ['closed', 'closed', 'closed'])
  for (const worker of world.live) worker.exit()
  await closed
  assert.deepEqual(world.pool.counts, { workers: 0, running: 0, queued: 0 })
})

test('keys are served in turn, and a full queue rejects the newest task of the longest key', async (t) => {
  const world = new PoolWorld(t, { workersMax: 1, queueMax: 6 })
  for (let at = 0; at < 10; at++) world.run(`flood ${at}`, { key: 'flood' })
  world.run('quiet', { key: 'quiet' })
  const order: string[] = []
  while (world.workers[0]?.tasks[0]) {
    order.push(world.workers[0].tasks[0].request)
    world.workers[0].answer()
  }
  await turn()
  assert.deepEqual(order, ['flood 0', 'flood 1', 'quiet', 'flood 2', 'flood 3', 'flood 4', 'flood 5'])
  assert.deepEqual(world.outcomesOf('flood 6', 'flood 7', 'flood 8', 'flood 9'), Array(4).fill('queue-full'))
})

test('where no thread can be started the tasks are rejected, and later ones succeed', async (t) => {
  const world = new PoolWorld(t)
  world.startFailure = new Error('EAGAIN')
  world.run('a')
  await turn()
  world.startFailure = undefined
  world.run('b')
  world.startFailure = new Error('EAGAIN')
  world.run('c')
  await world.drain()
  assert.deepEqual(world.outcomesOf('a', 'b', 'c'), ['worker-not-started', 'done', 'done'])
})

test('a worker stays free where the request cannot be built, and a task failure is the task’s own', async (t) => {
  const world = new PoolWorld(t, { workersMax: 1 })
  world.run('bad', {
    prepare() {
      throw new Error('locked')
    },
  })
  world.run('failing')
  world.run('good')
  world.workers[0]?.fail('bad input')
  await world.drain()
  assert.deepEqual(world.outcomesOf('bad', 'failing', 'good'), ['prepare failed', 'task-failed', 'done'])
  assert.equal(world.workers.length, 1)
})

/** A generator of numbers below a maximum: the same for the same seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return (state >>> 8) % below
  }
}

test('in any order of events each task settles once, no worker that ends gets a task, and no limit is exceeded', async (t) => {
  for (let seed = 1; seed <= 60; seed++) {
    const random = randomOf(seed)
    const limits = { workersMax: 1 + random(3), tasksPerWorkerMax: 1 + random(2), queueMax: 1 + random(6) }
    const world = new PoolWorld(t, limits)
    const controllers: AbortController[] = []
    const pick = () => world.live[random(Math.max(1, world.live.length))]
    const events: readonly (() => void)[] = [
      () => {
        const controller = new AbortController()
        controllers.push(controller)
        world.run(`task ${world.outcomes.size}`, { key: `key ${random(3)}`, signal: controller.signal })
      },
      () => pick()?.answer(),
      () => pick()?.fail('failure'),
      () => pick()?.exit(random(2) === 0 ? new Error('died') : undefined),
      () => world.live.find(({ isTerminated }) => isTerminated)?.exit(),
      () => t.mock.timers.tick([1, IDLE_MS, QUEUE_MS, TASK_MS][random(4)] ?? 1),
      () => controllers[random(Math.max(1, controllers.length))]?.abort(),
      () => {
        world.startFailure = random(4) === 0 ? new Error('EAGAIN') : undefined
      },
    ]
    for (let step = 0; step < 200; step++) {
      // Most events are submissions and answers.
      const at = random(2) === 0 ? random(2) : random(events.length)
      events[at]?.()
      if (random(3) === 0) await turn()
      const { queued, running, workers } = world.pool.counts
      const hint = `seed ${seed}, step ${step}`
      assert.ok(workers <= limits.workersMax && world.live.length <= limits.workersMax, hint)
      assert.ok(queued <= limits.queueMax && running <= limits.workersMax * limits.tasksPerWorkerMax, hint)
      for (const worker of world.live) {
        if (worker.isTerminated) continue
        assert.ok(worker.tasks.length <= limits.tasksPerWorkerMax, hint)
        assert.equal(worker.isReferenced, worker.tasks.length > 0, `${hint}: a busy worker keeps the process alive`)
      }
      const isIdle = world.live.some((worker) => !worker.isTerminated && worker.tasks.length === 0)
      assert.ok(queued === 0 || !isIdle, `${hint}: a task is queued beside an idle worker`)
    }
    world.startFailure = undefined
    world.run('last')
    await world.drain()
    assert.deepEqual(
      [...world.outcomes].filter(([, outcome]) => outcome === 'pending' || outcome === 'wrong response'),
      [],
      `seed ${seed}`,
    )
    assert.deepEqual(
      world.workers.flatMap(({ violations }) => violations),
      [],
    )
    t.mock.timers.tick(IDLE_MS)
    for (const worker of world.live) worker.exit()
    assert.deepEqual(world.pool.counts, { workers: 0, running: 0, queued: 0 })
    t.mock.timers.reset()
  }
})

test('a round-robin queue agrees with a model', () => {
  for (let seed = 1; seed <= 50; seed++) {
    const random = randomOf(seed)
    const queue = new RoundRobinQueue<number>()
    let model: { key: string; items: number[] }[] = []
    for (let step = 0; step < 200; step++) {
      const key = String(random(4))
      const entry = model.find((each) => each.key === key)
      const event = random(4)
      if (event < 2) {
        queue.add(key, step)
        if (entry) entry.items.push(step)
        else model.push({ key, items: [step] })
      } else if (event === 2) {
        const [first] = model
        assert.equal(queue.shift(), first?.items.shift())
        model = [...model.slice(1), ...(first ? [first] : [])]
      } else {
        const item = entry?.items.splice(random(entry.items.length), 1)[0] ?? -1
        assert.equal(queue.delete(key, item), item >= 0)
      }
      model = model.filter(({ items }) => items.length > 0)
      assert.equal(
        queue.size,
        model.reduce((sum, { items }) => sum + items.length, 0),
      )
      assert.equal(queue.longest()?.size ?? 0, Math.max(0, ...model.map(({ items }) => items.length)))
    }
  }
})
