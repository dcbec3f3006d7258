/** What `issued-crash.test.ts` cuts short at each of its steps. */
import type { Engine } from '../../src/engines/framework/engine.ts'
import type { CoreAnswer, CoreWorld } from '../helpers/core-world.ts'

/** An answered step, with what its caller got. */
export interface Said {
  readonly step: string
  readonly value: string
}

/** A request that was answered. */
export interface Answered {
  readonly id: string
  /** Of the token that the answer holds; absent where it holds none. */
  readonly accessor?: string
}

export function answeredAs(id: string, { body }: CoreAnswer): Answered {
  const accessor = body.auth?.['accessor']
  return typeof accessor === 'string' ? { id, accessor } : { id }
}

export interface Scenario {
  /** New ones for each world. */
  readonly engines: () => readonly Engine[]
  /** What is said, in this order. */
  readonly steps: readonly string[]
  prepare(world: CoreWorld): Promise<void>
  /** Calls `say` after each answer. */
  run(world: CoreWorld, say: (said: Said) => void): Promise<void>
  /** Looks at what a killed process has left, `said` being what it had answered; `what` begins each fault. */
  look(world: CoreWorld, said: readonly Said[], what: string): Promise<void>
}
