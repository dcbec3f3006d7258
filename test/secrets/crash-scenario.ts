/** What `issued-crash.test.ts` cuts short at each of its steps. */
import type { Engine } from '../../src/engines/engine.ts'
import type { CoreWorld } from '../helpers/core-world.ts'

/** An answered step, with what its caller got. */
export interface Said {
  readonly step: string
  readonly value: string
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
  /** Looks for the line of an answer in the audit file, as soon as the answer is there. */
  audited?(lines: readonly string[], said: Said): void
}
