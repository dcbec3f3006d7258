/**
 * Processes and directories of a run. All are removed when the program ends, unless it is killed.
 */
import { type ChildProcess, fork, type Serializable, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const children = new Set<ChildProcess>()
const directories = new Set<string>()

process.once('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  for (const path of directories) rmSync(path, { recursive: true, force: true })
})
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130))

export function temporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'outpost-bench-'))
  directories.add(path)
  return path
}

export function removeDirectory(path: string): void {
  rmSync(path, { recursive: true, force: true })
  directories.delete(path)
}

function keep(child: ChildProcess): ChildProcess {
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

/** A program whose standard output is read by the caller; its standard error is that of this process. */
export function start(command: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env): ChildProcess {
  return keep(spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'], env }))
}

export async function stop(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill(signal)
  // After this time, a program that still drains can be killed without loss.
  const patience = setTimeout(() => child.kill('SIGKILL'), 15_000)
  await ended
  clearTimeout(patience)
}

export function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('the process did not start')
  return child.pid
}

/** A child program that communicates over IPC: it sends one message when it is ready, then responds to commands. */
export class Helper<Order extends Serializable, Answer> {
  readonly #child: ChildProcess
  readonly #answers: Answer[] = []
  #waiting: ((answer: Answer) => void) | undefined

  /** `name` is a file in this directory, without its ending. */
  constructor(name: string, options: Readonly<Record<string, string>> = {}) {
    const file = join(import.meta.dirname, `${name}.ts`)
    this.#child = keep(fork(file, [JSON.stringify(options)], { stdio: 'inherit' }))
    this.#child.on('message', (message) => {
      const answer = message as Answer
      if (this.#waiting) this.#waiting(answer)
      else this.#answers.push(answer)
      this.#waiting = undefined
    })
  }

  get pid(): number {
    return pidOf(this.#child)
  }

  send(order: Order): void {
    this.#child.send(order)
  }

  /** The next thing it says. */
  next(): Promise<Answer> {
    const answer = this.#answers.shift()
    if (answer !== undefined) return Promise.resolve(answer)
    return new Promise((resolve, reject) => {
      const ended = () => reject(new Error('a helper process of the bench ended early'))
      this.#child.once('exit', ended)
      this.#waiting = (said) => {
        this.#child.off('exit', ended)
        resolve(said)
      }
    })
  }

  stop(): Promise<void> {
    return stop(this.#child, 'SIGKILL')
  }
}

/** Arguments of helpers at their start. A helper ends with the process that started it. */
export function helperOptions(): Readonly<Record<string, string>> {
  process.once('disconnect', () => process.exit())
  return JSON.parse(process.argv[2] ?? '{}') as Record<string, string>
}

/** Messages of a serving helper: its port first, then 0 for each executed command. */
export interface Said {
  readonly port: number
}

/** Listens on any free port and sends its number. */
export function serveHere(server: Server): void {
  server.listen(0, '127.0.0.1', () => {
    const address = server.address()
    if (address !== null && typeof address === 'object') process.send?.({ port: address.port } satisfies Said)
  })
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  await new Promise((closed) => server.close(closed))
  if (address === null || typeof address === 'string') throw new Error('no port to be had')
  return address.port
}
