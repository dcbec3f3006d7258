/** A worker thread that responds, fails and exits on demand, and records forbidden calls of a pool. */
import { EventEmitter } from 'node:events'
import type { WorkerThread } from '../../src/platform/worker-pool.ts'
import type { TaskMessage } from '../../src/platform/worker-task.ts'

export class FakeWorker extends EventEmitter implements WorkerThread {
  /** Messages without a response, the oldest first. */
  readonly tasks: TaskMessage<string>[] = []
  readonly violations: string[] = []
  isReferenced = true
  isTerminated = false
  hasExited = false

  postMessage(message: TaskMessage<string>): void {
    if (this.isTerminated || this.hasExited)
      this.violations.push(`task ${message.request} was sent to a worker that ends`)
    this.tasks.push(message)
  }

  ref(): void {
    this.isReferenced = true
  }

  unref(): void {
    this.isReferenced = false
  }

  terminate(): Promise<number> {
    this.isTerminated = true
    return Promise.resolve(1)
  }

  /** Responds to the oldest message with its request. */
  answer(): void {
    const task = this.tasks.shift()
    if (task) this.emit('message', { id: task.id, response: task.request })
  }

  fail(text: string): void {
    const task = this.tasks.shift()
    if (task) this.emit('message', { id: task.id, failure: text })
  }

  /** Exits, after an error event if one is given. */
  exit(error?: Error): void {
    if (this.hasExited) return
    this.hasExited = true
    if (error) this.emit('error', error)
    this.emit('exit', 1)
  }
}
