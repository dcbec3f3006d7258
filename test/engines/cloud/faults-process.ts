/** The core of a CloudWorld in a process of its own, which can be killed. */
import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import type { CloudWorld } from '../../helpers/cloud-world.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

const CHILD = join(import.meta.dirname, 'faults-child.ts')

export interface ChildRequest {
  readonly id: number
  /** `WORK`: what engines do by themselves. */
  readonly method: string
  readonly path: string
  readonly body?: unknown
  readonly nowMs: number
}

export interface ChildAnswer {
  readonly id: number
  readonly status: number
  readonly text: string
}

export interface Answered {
  readonly status: number
  readonly text: string
}

/** What the chaos works on: a core that can be killed. */
export interface Victim {
  ask(method: string, path: string, body?: unknown): Promise<Answered>
  work(): Promise<unknown>
  pass(seconds: number): void
  kill(): Promise<void>
}

export class ProcessVictim implements Victim {
  readonly #own: CloudWorld
  #child: ChildProcess | undefined
  readonly #waiting = new Map<number, { answered: (answer: Answered) => void; died: (error: Error) => void }>()
  #requests = 0

  private constructor(own: CloudWorld) {
    this.#own = own
  }

  /** Takes the core out of this process. */
  static async start(own: CloudWorld): Promise<ProcessVictim> {
    await own.world.close()
    const victim = new ProcessVictim(own)
    await victim.#begin()
    return victim
  }

  /** Brings the core back into this process, which has the child killed. */
  async end(): Promise<void> {
    await this.#end()
    const { directory, keys, nowMs } = this.#own.world
    this.#own.world = await CoreWorld.reopen(directory, keys, { nowMs, engines: [cloud] })
  }

  ask(method: string, path: string, body?: unknown): Promise<Answered> {
    const child = this.#child
    if (!child?.connected) return Promise.reject(new Error('killed'))
    const id = ++this.#requests
    const request: ChildRequest = { id, method, path, body, nowMs: this.#own.world.nowMs }
    return new Promise((answered, died) => {
      this.#waiting.set(id, { answered, died })
      child.send(request, (error) => error && died(error))
    })
  }

  work(): Promise<Answered> {
    return this.ask('WORK', '')
  }

  pass(seconds: number): void {
    this.#own.pass(seconds)
  }

  async kill(): Promise<void> {
    await this.#end()
    await this.#begin()
  }

  async #end(): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (!child) return
    const gone = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await gone
    for (const { died } of this.#waiting.values()) died(new Error('killed'))
    this.#waiting.clear()
  }

  async #begin(): Promise<void> {
    const { directory, keys, nowMs } = this.#own.world
    const child = fork(CHILD, [directory, keys.unsealKey, keys.rootToken, String(nowMs)])
    await new Promise<void>((resolve, reject) => {
      child.once('exit', (code) => reject(new Error(`the core ended with ${code}`)))
      child.on('message', (message) => {
        const { id, status, text } = message as ChildAnswer
        if (id === 0) return resolve()
        this.#waiting.get(id)?.answered({ status, text })
        this.#waiting.delete(id)
      })
    })
    this.#child = child
  }
}
