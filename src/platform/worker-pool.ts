/**
 * Worker pool: runs tasks on worker threads, so that computation does not block the event loop.
 *
 * Theory of operation. A task waits in a round-robin queue until a worker can take it: an idle worker, or a new one while there
 * are fewer than `workersMax`, or the least busy one while it has fewer than `tasksPerWorkerMax`. The request is built at that
 * moment (`prepare`), so a queued task holds no buffers. A worker that has been idle for `idleTimeoutMs` is terminated. Busy
 * workers keep the process alive, idle ones do not.
 *
 * A worker is in one of three states. *Live*: it takes tasks. *Ending*: it was terminated or has reported an error; it gets no
 * task, and its answers are ignored. *Exited*: it is forgotten, and the next queued task may start another one. The change from live
 * to ending is synchronous with its cause (idle timeout, task timeout, error, `close`), so a task submitted at the moment of an idle
 * timeout is never given to the worker that ends. An ending worker still counts toward `workersMax`: native code is not
 * interrupted by `terminate`, and threads must not accumulate after it.
 *
 * Promises.
 * - Each task settles exactly once: with the response, or with a `WorkerTaskError` whose `reason` names the cause, or with what
 *   its `prepare` threw.
 * - There are never more than `workersMax` threads, `queueMax` queued tasks, or `tasksPerWorkerMax` tasks at one worker.
 * - A worker that dies rejects only the tasks that it had; queued tasks get another worker.
 * - Keys share the workers equally. If the queue is full, a new task evicts the newest task of the key with the most queued
 *   tasks, if that key has more than the new task's own; otherwise the new task is rejected.
 * - A queued task is rejected when its signal aborts or `queueTimeoutMs` has passed. A running task is not canceled.
 * - A task that has not answered within `taskTimeoutMs`, the start of its worker included, is rejected and its worker is terminated.
 *
 * Assumptions. The worker's file calls `serveTasks` (`worker-task.ts`), which answers in the order of the messages: with several tasks
 * at a worker the oldest is the one that runs, and the task timeout counts from the answer before. Tasks are not retried: a
 * request may have been transferred.
 *
 * Failure modes. The system has no thread to give: tasks wait for the live workers; without any worker all queued tasks are
 * rejected. A worker exceeds `heapMaxMib` (V8's heap, not buffers): the tasks it had are rejected with `out-of-memory`. A worker
 * fails whenever it starts: each task is rejected once, so there is no restart loop.
 */
import { type Transferable, Worker } from 'node:worker_threads'
import { messageOf } from './errors.ts'
import type { TaskAnswer, TaskMessage } from './worker-task.ts'

/** What the pool uses of `Worker`. */
export interface WorkerThread extends Pick<Worker, 'postMessage' | 'ref' | 'unref' | 'terminate'> {
  on(event: 'message' | 'messageerror' | 'error' | 'exit', listener: (value: unknown) => void): unknown
}

export interface WorkerPoolOptions {
  /** What the workers do, for error texts: `password hashing`. */
  readonly name: string
  /** Name of the threads for `ps -T` and `top -H`, at most 15 characters. */
  readonly threadName: string
  /** The worker's file: a `new URL` of its relative name and `import.meta.url`, written out, as the bundler looks for that text. */
  readonly url: URL
  readonly workersMax: number
  /** 1 unless given. More let a worker begin its next task without waiting for the main thread. */
  readonly tasksPerWorkerMax?: number
  readonly queueMax: number
  /** Unlimited unless given. */
  readonly queueTimeoutMs?: number
  readonly taskTimeoutMs: number
  readonly idleTimeoutMs: number
  /** Limit of a worker's V8 heap; Node's own unless given. */
  readonly heapMaxMib?: number
  /** Whether a busy worker keeps the process alive; true unless given. */
  readonly keepsProcessAlive?: boolean
  /** Starts a thread; may throw. For tests. */
  readonly startWorker?: () => WorkerThread
}

export interface WorkerTask<Request> {
  /** Builds the request once a worker takes the task. What it throws rejects the task, and the worker stays free. */
  readonly prepare: () => { readonly request: Request; readonly transfer?: Transferable[] }
  /** Tasks of a key are FIFO, keys are served round-robin. */
  readonly key?: string
  /** Cancels the task while it is queued. */
  readonly signal?: AbortSignal
}

export type WorkerTaskErrorReason =
  | 'queue-full'
  | 'queue-timeout'
  | 'cancelled'
  | 'task-timeout'
  | 'task-failed'
  | 'out-of-memory'
  | 'worker-died'
  | 'worker-not-started'
  | 'closed'

export class WorkerTaskError extends Error {
  override readonly name = 'WorkerTaskError'
  readonly reason: WorkerTaskErrorReason

  constructor(reason: WorkerTaskErrorReason, message: string) {
    super(message)
    this.reason = reason
  }
}

interface PendingTask<Request, Response> {
  readonly prepare: WorkerTask<Request>['prepare']
  readonly resolve: (response: Response) => void
  readonly reject: (error: unknown) => void
  /** Removes what would cancel the task while it is queued. */
  readonly leaveQueue: () => void
}

interface PoolWorker<Request, Response> {
  readonly worker: WorkerThread
  /** By the ID of the message, the oldest first. */
  readonly running: Map<number, PendingTask<Request, Response>>
  /** Idle timeout while nothing runs, task timeout otherwise. */
  timer: NodeJS.Timeout | undefined
  isEnding: boolean
}

export class WorkerPool<Request, Response> {
  readonly #options: WorkerPoolOptions
  readonly #workers = new Set<PoolWorker<Request, Response>>()
  readonly #queue = new RoundRobinQueue<PendingTask<Request, Response>>()
  #lastId = 0
  #isDispatching = false
  #isClosed = false
  readonly #allExited = Promise.withResolvers<void>()

  constructor(options: WorkerPoolOptions) {
    this.#options = options
  }

  /** Workers that have not exited, tasks that they have, and tasks that are queued. */
  get counts(): { readonly workers: number; readonly running: number; readonly queued: number } {
    const running = [...this.#workers].reduce((sum, each) => sum + each.running.size, 0)
    return { workers: this.#workers.size, running, queued: this.#queue.size }
  }

  /** Resolves with the worker's response. Rejects with a `WorkerTaskError`, or with what `prepare` threw. */
  run({ key = '', prepare, signal }: WorkerTask<Request>): Promise<Response> {
    if (this.#isClosed) return Promise.reject(this.#error('closed', 'the process is stopping'))
    if (signal?.aborted) return Promise.reject(this.#error('cancelled', 'the caller has gone'))
    const { promise, reject, resolve } = Promise.withResolvers<Response>()
    const { queueTimeoutMs } = this.#options
    const leave = (reason: WorkerTaskErrorReason, why: string) => {
      if (this.#queue.delete(key, task)) task.reject(this.#error(reason, why))
      task.leaveQueue()
    }
    const onAbort = () => leave('cancelled', 'the caller has gone')
    const onTimeout = () => leave('queue-timeout', `no worker was free within ${queueTimeoutMs} ms`)
    const timer = queueTimeoutMs === undefined ? undefined : setTimeout(onTimeout, queueTimeoutMs)
    timer?.unref()
    signal?.addEventListener('abort', onAbort, { once: true })
    const leaveQueue = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
    }
    const task = { prepare, resolve, reject, leaveQueue }
    this.#queue.add(key, task)
    this.#dispatch()
    if (this.#queue.size > this.#options.queueMax) this.#evict(key, task)
    return promise
  }

  /** Rejects all tasks and terminates all workers. Resolves once these have exited. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#rejectQueued('closed', 'the process is stopping')
    for (const each of this.#workers) this.#end(each, 'closed', 'the process is stopping')
    if (this.#workers.size > 0) await this.#allExited.promise
  }

  #error(reason: WorkerTaskErrorReason, why: string): WorkerTaskError {
    return new WorkerTaskError(reason, `${this.#options.name}: ${why}`)
  }

  /** Rejects one task of a queue that has one too many: the newest of the longest key, or the new one among equals. */
  #evict(key: string, task: PendingTask<Request, Response>): void {
    const longest = this.#queue.longest()
    const isLonger = longest && longest.size > this.#queue.sizeOf(key)
    const [fromKey, evicted] = isLonger ? [longest.key, longest.newest] : [key, task]
    this.#queue.delete(fromKey, evicted)
    evicted.leaveQueue()
    evicted.reject(this.#error('queue-full', `more than ${this.#options.queueMax} tasks are queued`))
  }

  #rejectQueued(reason: WorkerTaskErrorReason, why: string): void {
    for (;;) {
      const task = this.#queue.shift()
      if (!task) return
      task.leaveQueue()
      task.reject(this.#error(reason, why))
    }
  }

  /** Gives queued tasks to workers. Not re-entered where `prepare` submits another task. */
  #dispatch(): void {
    if (this.#isDispatching) return
    this.#isDispatching = true
    try {
      while (this.#queue.size > 0) {
        const worker = this.#availableWorker()
        const task = worker && this.#queue.shift()
        if (!worker || !task) break
        this.#assign(worker, task)
      }
    } finally {
      this.#isDispatching = false
    }
    // Workers that end would let the process exit before the queued tasks get another one.
    if (this.#queue.size > 0 && this.#options.keepsProcessAlive !== false) {
      for (const { worker } of this.#workers) worker.ref()
    }
  }

  #availableWorker(): PoolWorker<Request, Response> | undefined {
    const { tasksPerWorkerMax = 1, workersMax } = this.#options
    const live = [...this.#workers].filter(({ isEnding }) => !isEnding)
    const [least] = live.toSorted((a, b) => a.running.size - b.running.size)
    if (least?.running.size === 0) return least
    const started = this.#workers.size < workersMax ? this.#start() : undefined
    return started ?? (least && least.running.size < tasksPerWorkerMax ? least : undefined)
  }

  #start(): PoolWorker<Request, Response> | undefined {
    const { heapMaxMib, threadName, url } = this.#options
    const resourceLimits = heapMaxMib === undefined ? {} : { maxOldGenerationSizeMb: heapMaxMib }
    let worker: WorkerThread
    try {
      worker = this.#options.startWorker?.() ?? new Worker(url, { name: threadName, resourceLimits })
    } catch (error) {
      // Tasks wait for the workers that there are.
      if (this.#workers.size === 0) {
        this.#rejectQueued('worker-not-started', `a worker thread could not be started: ${messageOf(error)}`)
      }
      return undefined
    }
    const started: PoolWorker<Request, Response> = { worker, running: new Map(), timer: undefined, isEnding: false }
    // `serveTasks` of the same program has made it.
    worker.on('message', (answer) => this.#settle(started, answer as TaskAnswer<Response>))
    worker.on('messageerror', (error) => this.#end(started, 'worker-died', messageOf(error)))
    worker.on('error', (error) => {
      const isMemory = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY'
      this.#end(started, isMemory ? 'out-of-memory' : 'worker-died', `the worker thread failed: ${messageOf(error)}`)
    })
    worker.on('exit', () => this.#forget(started))
    this.#workers.add(started)
    this.#rest(started)
    return started
  }

  #assign(to: PoolWorker<Request, Response>, task: PendingTask<Request, Response>): void {
    task.leaveQueue()
    try {
      const { request, transfer = [] } = task.prepare()
      const message: TaskMessage<Request> = { id: ++this.#lastId, request }
      to.worker.postMessage(message, transfer)
      to.running.set(message.id, task)
    } catch (error) {
      task.reject(error)
      return
    }
    if (to.running.size > 1) return
    if (this.#options.keepsProcessAlive !== false) to.worker.ref()
    this.#watch(to)
  }

  #settle(by: PoolWorker<Request, Response>, answer: TaskAnswer<Response>): void {
    const task = by.running.get(answer.id)
    if (!task) return
    by.running.delete(answer.id)
    if (by.running.size === 0) this.#rest(by)
    else this.#watch(by)
    if ('failure' in answer) task.reject(this.#error('task-failed', answer.failure))
    else task.resolve(answer.response)
    this.#dispatch()
  }

  /** Starts the task timeout of the oldest task of a worker. */
  #watch(worker: PoolWorker<Request, Response>): void {
    const { taskTimeoutMs } = this.#options
    clearTimeout(worker.timer)
    worker.timer = setTimeout(() => {
      this.#end(worker, 'task-timeout', `the task took longer than ${taskTimeoutMs} ms`)
    }, taskTimeoutMs).unref()
  }

  /** Starts the idle timeout of a worker that has no task. */
  #rest(worker: PoolWorker<Request, Response>): void {
    worker.worker.unref()
    clearTimeout(worker.timer)
    worker.timer = setTimeout(() => this.#end(worker, 'worker-died', 'idle'), this.#options.idleTimeoutMs).unref()
  }

  /** Live to ending. `reason` is that of the oldest task; the others were not begun and are rejected with `worker-died`. */
  #end(worker: PoolWorker<Request, Response>, reason: WorkerTaskErrorReason, why: string): void {
    if (worker.isEnding) return
    worker.isEnding = true
    clearTimeout(worker.timer)
    const tasks = [...worker.running.values()]
    worker.running.clear()
    worker.worker.unref()
    void worker.worker.terminate()
    const others = reason === 'task-timeout' ? 'worker-died' : reason
    for (const [at, task] of tasks.entries()) task.reject(this.#error(at === 0 ? reason : others, why))
    this.#dispatch()
  }

  #forget(worker: PoolWorker<Request, Response>): void {
    this.#end(worker, 'worker-died', 'the worker thread has exited')
    this.#workers.delete(worker)
    if (this.#isClosed && this.#workers.size === 0) this.#allExited.resolve()
    this.#dispatch()
  }
}

/**
 * Round-robin queue: FIFO within a key, round-robin between keys, so a key with many items does not delay the others. With one key
 * it is a FIFO queue. `add`, `shift` and `delete` take constant time; `longest` takes time in proportion to the number of keys.
 */
export class RoundRobinQueue<Item> {
  /** In the order in which the keys are served; no set is empty. */
  readonly #itemsByKey = new Map<string, Set<Item>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  sizeOf(key: string): number {
    return this.#itemsByKey.get(key)?.size ?? 0
  }

  /** `item` must not be queued already. */
  add(key: string, item: Item): void {
    const items = this.#itemsByKey.get(key)
    if (items) items.add(item)
    else this.#itemsByKey.set(key, new Set([item]))
    this.#size++
  }

  /** Removes and returns the oldest item of the next key. */
  shift(): Item | undefined {
    const [next] = this.#itemsByKey
    if (!next) return undefined
    const [key, items] = next
    const [item] = items
    this.#itemsByKey.delete(key)
    if (item !== undefined) items.delete(item)
    if (items.size > 0) this.#itemsByKey.set(key, items)
    this.#size--
    return item
  }

  /** False where the item is not queued under this key. */
  delete(key: string, item: Item): boolean {
    const items = this.#itemsByKey.get(key)
    if (!items?.delete(item)) return false
    if (items.size === 0) this.#itemsByKey.delete(key)
    this.#size--
    return true
  }

  /** The key with the most items and its newest item. */
  longest(): { readonly key: string; readonly size: number; readonly newest: Item } | undefined {
    let found: { key: string; items: Set<Item> } | undefined
    for (const [key, items] of this.#itemsByKey) if (!found || items.size > found.items.size) found = { key, items }
    const newest = found && [...found.items].at(-1)
    return found && newest !== undefined ? { key: found.key, size: found.items.size, newest } : undefined
  }
}
