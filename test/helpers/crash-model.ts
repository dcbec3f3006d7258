/**
 * Model of the state after a kill. Workers run one operation after another, each below its own prefix, so a worker finds
 * the state before or after its last operation, and the latter if that was acknowledged. Each writing operation also
 * increments a shared counter, which shows how many operations of all workers were committed. The model does not run
 * operations: `hear` parses the output of a process that runs them, and other callers use `begin` and `done`.
 */
import assert from 'node:assert/strict'
import type { Random } from './frames.ts'

export interface Operation {
  /** Path and number of bytes; null deletes the entry. */
  readonly writes: readonly (readonly [path: string, bytes: number | null])[]
  /** Makes the values of different operations different. */
  readonly tag: string
}

export const COUNT_PATH = 'shared/count'

/** The value that an operation writes; it depends on path and tag, so that a wrong value is detected. */
export function valueOf(path: string, tag: string, bytes: number): string {
  return `${path} ${tag} `.padEnd(bytes, '.')
}

export const prefixOf = (worker: number) => `work/${worker}/`

/** The next operation of a worker with these paths: mostly one or two writes, sometimes many. */
export function nextOperation(random: Random, worker: number, paths: readonly string[], tag: string): Operation {
  const count = random.between(0, 9) === 0 ? random.between(3, 60) : random.between(1, 2)
  const writes = new Map<string, number | null>()
  for (let at = 0; at < count; at++) {
    const own = paths[random.between(0, paths.length - 1)]
    if (own !== undefined && (paths.length > 40 || random.between(0, 3) === 0)) writes.set(own, null)
    else writes.set(`${prefixOf(worker)}f${random.between(0, 3)}/${random.between(0, 30)}`, random.between(0, 3000))
  }
  return { writes: [...writes], tag }
}

type State = ReadonlyMap<string, string>

export class CrashModel {
  readonly #states = new Map<number, State>()
  readonly #open = new Map<number, Operation>()
  #counted = 0
  #acknowledged = 0
  /** Operations that would have changed nothing, so that only the counter shows whether they were committed. */
  #unsure = 0
  #heard = ''

  get acknowledged(): number {
    return this.#acknowledged
  }

  begin(worker: number, operation: Operation): void {
    assert.ok(!this.#open.has(worker), `worker ${worker} does two things at once`)
    this.#open.set(worker, operation)
  }

  done(worker: number): void {
    const operation = this.#open.get(worker)
    assert.ok(operation, `worker ${worker} did nothing`)
    this.#open.delete(worker)
    this.#states.set(worker, after(this.#states.get(worker), operation))
    this.#acknowledged++
    this.#counted++
  }

  /** Parses lines of a process: `begin WORKER JSON`, `done WORKER`, `wrong TEXT`. A line cut by the kill is ignored. */
  hear(text: string): void {
    const lines = (this.#heard + text).split('\n')
    this.#heard = lines.pop() ?? ''
    for (const line of lines) {
      const [, verb, rest = ''] = /^(\w+) (.*)$/.exec(line) ?? []
      const [, worker, operation] = /^(\d+) ?(.*)$/.exec(rest) ?? []
      if (verb === 'begin') this.begin(Number(worker), JSON.parse(operation ?? '') as Operation)
      else if (verb === 'done') this.done(Number(worker))
      else assert.fail(line)
    }
  }

  /** Compares the model with the stored entries and continues from them. `read` returns all entries below a prefix. */
  verify(read: (prefix: string) => ReadonlyMap<string, string>): void {
    this.#heard = ''
    for (const worker of new Set([...this.#states.keys(), ...this.#open.keys()])) {
      const before: State = this.#states.get(worker) ?? new Map()
      const open = this.#open.get(worker)
      const found = read(prefixOf(worker))
      if (open && isSame(found, after(before, open))) {
        // Both states may be equal: then the counter decides.
        this.#states.set(worker, found)
        if (!isSame(found, before)) this.#counted++
        else this.#unsure++
      } else
        assert.ok(isSame(found, before), `worker ${worker}: ${difference(found, before)}, open ${JSON.stringify(open)}`)
    }
    const count = Number(read('shared/').get(COUNT_PATH) ?? 0)
    assert.ok(
      count >= this.#counted && count <= this.#counted + this.#unsure,
      `${count} operations are counted, ${this.#counted} and up to ${this.#unsure} more are there`,
    )
    this.#counted = count
    this.#unsure = 0
    this.#open.clear()
  }
}

function after(before: State | undefined, { writes, tag }: Operation): State {
  const state = new Map(before)
  for (const [path, bytes] of writes) {
    if (bytes === null) state.delete(path)
    else state.set(path, valueOf(path, tag, bytes))
  }
  return state
}

function isSame(a: State, b: State): boolean {
  return a.size === b.size && [...a].every(([path, value]) => b.get(path) === value)
}

function difference(found: State, wanted: State): string {
  const paths = [...new Set([...found.keys(), ...wanted.keys()])]
  const wrong = paths.filter((path) => found.get(path) !== wanted.get(path)).slice(0, 3)
  return wrong
    .map((path) => `${path} is ${found.get(path)?.slice(0, 60)} and not ${wanted.get(path)?.slice(0, 60)}`)
    .join(', ')
}
