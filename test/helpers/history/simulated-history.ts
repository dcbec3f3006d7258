/**
 * Histories of simulated objects: each operation takes effect at a random time between its invocation and its response.
 * Some have an unknown outcome and take effect later or never.
 */
import type { Random } from '../frames.ts'
import type { Operation } from './operation.ts'

export interface SimulatedObject<Input, Result> {
  /** The next operation of a client, which knows the results of its earlier ones. */
  next(client: string, random: Random): Input
  /** Takes effect. */
  apply(client: string, input: Input): Result
}

export interface SimulationOptions {
  readonly clients: number
  readonly operations: number
  /** Part of the operations with an unknown outcome. */
  readonly unknown: number
}

interface PlannedOperation {
  readonly id: number
  readonly client: string
  readonly invokedMs: number
  readonly respondedMs: number
  /** Infinity: never. */
  readonly effectMs: number
  readonly isUnknown: boolean
}

const SERVERS = ['s1', 's2', 's3'] as const

function plan(random: Random, { clients, operations, unknown }: SimulationOptions): PlannedOperation[] {
  const idleSinceMs = Array.from({ length: clients }, () => random.next() * 10)
  return Array.from({ length: operations }, (_, id) => {
    const at = id % clients
    const invokedMs = (idleSinceMs[at] ?? 0) + random.next() * 3
    const respondedMs = invokedMs + 0.2 + random.next() * random.pick([2, 2, 20])
    idleSinceMs[at] = respondedMs
    const isUnknown = random.chance(unknown)
    const delayMs = isUnknown && random.chance(0.3) ? random.next() * 200 : 0
    const isLost = isUnknown && random.chance(0.4)
    const effectMs = isLost ? Number.POSITIVE_INFINITY : invokedMs + random.next() * (respondedMs - invokedMs) + delayMs
    return { id, client: `c${at}`, invokedMs, respondedMs, effectMs, isUnknown }
  })
}

export function simulate<Input, Result>(
  object: SimulatedObject<Input, Result>,
  random: Random,
  options: SimulationOptions,
): Operation<Input, Result>[] {
  const events = plan(random, options).flatMap((planned) => [
    { atMs: planned.invokedMs, planned, isEffect: false },
    { atMs: planned.effectMs, planned, isEffect: true },
  ])
  const inputs = new Map<PlannedOperation, Input>()
  const operations: Operation<Input, Result>[] = []
  for (const { isEffect, planned } of events.toSorted((a, b) => (a.atMs < b.atMs ? -1 : 1))) {
    const { client, id, invokedMs, isUnknown, respondedMs } = planned
    if (!isEffect) {
      inputs.set(planned, object.next(client, random))
      continue
    }
    const input = inputs.get(planned)
    if (input === undefined) throw new Error('an effect before its invocation')
    const result = Number.isFinite(planned.effectMs) ? object.apply(client, input) : undefined
    const end = isUnknown ? { respondedMs: Number.POSITIVE_INFINITY, result: undefined } : { respondedMs, result }
    operations.push({ id, client, server: random.pick(SERVERS), object: 'o', input, invokedMs, ...end })
  }
  return operations.toSorted((a, b) => a.invokedMs - b.invokedMs)
}
