/** Commands of the program in the process of the test: a separate process uses a tenth of a second of CPU. */
import { AsyncLocalStorage } from 'node:async_hooks'
import { Readable } from 'node:stream'
import { isatty } from 'node:tty'
import type { ByteSink } from '../../src/cli/framework/byte-sink.ts'
import { runCommand } from '../../src/cli/command.ts'
import { programVersion } from '../../src/cli/commands/version.ts'
import type { CommandIo } from '../../src/cli/framework/define-command.ts'
import type { DiagnosisOptions } from '../../src/cli/framework/services.ts'
import type { Finished } from '../cli/outpost-process.ts'

/** Commands that start processes, change the user of their process, or signal processes. */
const NEEDS_PROCESS = /^(?:agent|alloc (?!list|status)|operator dr drill)\b/
const SIGNALS: ReadonlySet<string | symbol> = new Set(['SIGINT', 'SIGTERM', 'SIGHUP'])

/** True for a command line with the same effect in this process, which has no terminal. */
export function runsHere(args: readonly string[]): boolean {
  return !isatty(0) && !isatty(1) && !NEEDS_PROCESS.test(args.join(' '))
}

/** Process state of a command: concurrent commands have separate ones. */
class Surroundings {
  readonly input: Readable
  /** The code of `process.exit`. */
  readonly exited: Promise<number>
  hasExited = false
  /** Signal listeners that the command has added. */
  readonly heard: [event: string | symbol, listener: (...values: unknown[]) => void][] = []
  #exit: (code: number) => void = () => undefined

  constructor(input: string) {
    this.input = Readable.from([Buffer.from(input)])
    this.exited = new Promise((resolve) => (this.#exit = resolve))
  }

  exit(code: NodeJS.Process['exitCode']): never {
    this.hasExited = true
    this.#exit(Number(code))
    throw new Error('the command is over')
  }
}

const surroundings = new AsyncLocalStorage<Surroundings>()
const ownInput = Object.getOwnPropertyDescriptor(process, 'stdin')
const ownExit = process.exit.bind(process)
Object.defineProperty(process, 'stdin', {
  ...ownInput,
  get: (): unknown => surroundings.getStore()?.input ?? ownInput?.get?.call(process),
})
// Node reports a new listener synchronously, so the async storage is that of the command that adds it.
process.on('newListener', (event, listener) => {
  if (SIGNALS.has(event)) surroundings.getStore()?.heard.push([event, listener])
})
process.exit = (code) => surroundings.getStore()?.exit(code ?? 0) ?? ownExit(code)

async function policyChecker() {
  return (await import('../../src/secrets/policies/policy.ts')).checkPolicy
}

/** As in `src/main.ts`. */
async function* diagnose(options: DiagnosisOptions) {
  const diagnosis = await import('../../src/daemon/diagnosis/diagnose.ts')
  yield* diagnosis.diagnose(options, programVersion())
}

export interface Begun {
  readonly stdout: () => string
  readonly stderr: () => string
  readonly finished: Promise<Finished>
}

/** The result of the command as a process. `env` is its complete environment, `input` its standard input. */
export function runHere(args: readonly string[], env: NodeJS.ProcessEnv, input = ''): Promise<Finished> {
  return beginHere(args, env, input).finished
}

/** Starts the command. It cannot be signaled: that needs a process. */
export function beginHere(args: readonly string[], env: NodeJS.ProcessEnv, input = ''): Begun {
  const around = new Surroundings(input)
  const written: Record<1 | 2, Buffer[]> = { 1: [], 2: [] }
  const write = (descriptor: 1 | 2, bytes: Buffer) => void (around.hasExited || written[descriptor].push(bytes))
  const io: CommandIo = {
    out: (text) => write(1, Buffer.from(text)),
    err: (text) => write(2, Buffer.from(text)),
    openSink: (descriptor) => sinkInto((bytes) => write(descriptor, Buffer.from(bytes))),
    env,
  }
  const textOf = (descriptor: 1 | 2) => Buffer.concat(written[descriptor]).toString('utf8')
  const finished = (async () => {
    const code = await codeOf(args, io, around)
    return { code, signal: null, stdout: textOf(1), stderr: textOf(2) }
  })()
  return { stdout: () => textOf(1), stderr: () => textOf(2), finished }
}

async function codeOf(args: readonly string[], io: CommandIo, around: Surroundings): Promise<number> {
  const code = await surroundings.run(around, () =>
    Promise.race([around.exited, runCommand(args, io, { policyChecker, diagnose })]),
  )
  // A command keeps its signal listeners until its process ends, and this process continues, so they are removed here.
  // Other running commands keep theirs.
  for (const [signal, listener] of around.heard) process.off(signal, listener)
  return code
}

/** Reads all output. */
function sinkInto(write: (bytes: Buffer) => void): ByteSink {
  return {
    write(bytes) {
      write(bytes)
      return undefined
    },
    gone: new Promise(() => undefined),
    isGone: false,
    end: () => Promise.resolve(),
  }
}
