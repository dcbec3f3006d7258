/** The checker of histories: it accepts those of correct objects, and finds planted violations in a part that a person can read. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../frames.ts'
import { overlappingActivities } from './active-spans.ts'
import { violationsOf } from './check-history.ts'
import { counter, type CounterInput, type CounterResult } from './counter.ts'
import type { HistoryKind, Operations } from './history-kind.ts'
import { limitedUses, type UseInput, type UseResult } from './limited-uses.ts'
import { appended, lists, type Lists, type ListsInput, type ListsResult } from './lists.ts'
import { History, type Operation } from './operation.ts'
import { register, type RegisterInput, type RegisterResult } from './register.ts'
import { type SimulatedObject, simulate } from './simulated-history.ts'

const MANY = { clients: 20, operations: 3000, unknown: 0.05 }
const FEW = { clients: 8, operations: 200, unknown: 0.1 }

type RegisterOperation = Operation<RegisterInput, RegisterResult>
type ListsOperation = Operation<ListsInput, ListsResult>

class SimulatedRegister implements SimulatedObject<RegisterInput, RegisterResult> {
  readonly #known = new Map<string, number>()
  #version = 0
  #value = ''
  #next = 0

  next(client: string, random: Random): RegisterInput {
    const dice = random.between(0, 9)
    if (dice < 5) return { kind: 'read' }
    const value = `v${this.#next++}`
    return dice < 6 ? { kind: 'write', value } : { kind: 'cas', version: this.#known.get(client) ?? 0, value }
  }

  apply(client: string, input: RegisterInput): RegisterResult {
    const isMismatch = input.kind === 'cas' && input.version !== this.#version
    if (input.kind !== 'read' && !isMismatch) {
      this.#version++
      this.#value = input.value
    }
    this.#known.set(client, this.#version)
    if (isMismatch) return { kind: 'mismatch' }
    if (input.kind === 'read') return { kind: 'value', version: this.#version, value: this.#value }
    return { kind: 'written', version: this.#version }
  }
}

class SimulatedCounter implements SimulatedObject<CounterInput, CounterResult> {
  #value = 0

  next(_client: string, random: Random): CounterInput {
    return { kind: random.pick(['read', 'add']) }
  }

  apply(_client: string, { kind }: CounterInput): CounterResult {
    if (kind === 'add') this.#value++
    return { value: this.#value }
  }
}

class SimulatedLists implements SimulatedObject<ListsInput, ListsResult> {
  #lists: Lists = { a: '', b: '', c: '' }
  readonly #known = new Map<string, Lists>()
  #next = 0

  next(client: string, random: Random): ListsInput {
    const names = random.pick([['a', 'b'], ['b', 'c'], ['a', 'b', 'c'], ['a']])
    if (random.chance(0.6)) return { kind: 'read', names }
    const known = this.#known.get(client) ?? { a: '', b: '', c: '' }
    return { kind: 'append', element: `e${this.#next++}`, to: partOf(known, names) }
  }

  apply(client: string, input: ListsInput): ListsResult {
    this.#known.set(client, this.#lists)
    if (input.kind === 'read') return { kind: 'lists', lists: partOf(this.#lists, input.names) }
    const { element, to } = input
    if (Object.entries(to).some(([name, list]) => this.#lists[name] !== list)) return { kind: 'mismatch' }
    const after = Object.entries(to).map(([name, list]) => [name, appended(list, element)])
    this.#lists = { ...this.#lists, ...Object.fromEntries(after) }
    this.#known.set(client, this.#lists)
    return { kind: 'appended' }
  }
}

function partOf(all: Lists, names: readonly string[]): Lists {
  return Object.fromEntries(names.map((name) => [name, all[name] ?? '']))
}

class SimulatedToken implements SimulatedObject<UseInput, UseResult> {
  readonly #limit: number
  #uses = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  next(): UseInput {
    return { limit: this.#limit }
  }

  apply(): UseResult {
    if (this.#uses >= this.#limit) return 'denied'
    this.#uses++
    return 'used'
  }
}

const registerHistory = (seed: number, options = FEW) => simulate(new SimulatedRegister(), new Random(seed), options)
const listsHistory = (seed: number, options = FEW) => simulate(new SimulatedLists(), new Random(seed), options)
const counterHistory = (seed: number, options = FEW) => simulate(new SimulatedCounter(), new Random(seed), options)
const tokenHistory = (seed: number, limit: number, options = FEW) =>
  simulate(new SimulatedToken(limit), new Random(seed), options)

function assertGood<Input, Result>(kind: HistoryKind<Input, Result>, history: Operations<Input, Result>): void {
  assert.deepEqual(
    violationsOf(kind, history).map(({ report }) => report),
    [],
  )
}

/** Checks that the history is a violation, shown with few operations; returns the report. */
function reportOf<Input, Result>(
  kind: HistoryKind<Input, Result>,
  history: Operations<Input, Result>,
  operationsMax: number,
): string {
  const [found] = violationsOf(kind, history)
  assert.equal(found?.verdict, 'violation')
  assert.ok(found.operations.length <= operationsMax, found.report)
  return found.report
}

/** Replaces one operation of a history, chosen at random from those for which `change` returns one. */
function planted<Input, Result>(
  history: readonly Operation<Input, Result>[],
  seed: number,
  change: (operation: Operation<Input, Result>) => Operation<Input, Result> | undefined,
): Operation<Input, Result>[] {
  const possible = history.flatMap((operation, at) => {
    const changed = change(operation)
    return changed ? [{ at, changed }] : []
  })
  const { at, changed } = possible[new Random(seed).between(0, possible.length - 1)] ?? assert.fail('nothing to change')
  return history.with(at, changed)
}

const operationAt = (
  id: number,
  invokedMs: number,
  more: Pick<RegisterOperation, 'input' | 'result'>,
): RegisterOperation => {
  return { id, client: `c${id}`, server: 's1', object: 'o', invokedMs, respondedMs: invokedMs + 1, ...more }
}

const timedRead = (id: number, times: readonly [number, number], more: object): RegisterOperation => {
  const [invokedMs, respondedMs] = times
  const input: RegisterInput = { kind: 'read' }
  return { id, client: 'c', server: 's1', object: 'o', input, result: undefined, invokedMs, respondedMs, ...more }
}

const elements = (list: string) => (list === '' ? [] : list.split(','))

const listsRead = (id: number, result: Lists): ListsOperation => ({
  id,
  client: 'c',
  server: 's1',
  object: 'o',
  input: { kind: 'read', names: Object.keys(result) },
  invokedMs: id,
  respondedMs: id + 0.5,
  result: { kind: 'lists', lists: result },
})

const seen = (active: string, since: string, askedMs: number) => {
  return { server: active, active, since, askedMs, answeredMs: askedMs + 1 }
}

const timedWrite = (id: number, version: number, atMs: number) =>
  timedRead(id, [atMs, atMs + 1], {
    input: { kind: 'write', value: `v${version}` },
    result: { kind: 'written', version },
  })

const staleRead = (maxAgeMs: number) =>
  timedRead(3, [2000, 2001], { result: { kind: 'value', version: 1, value: 'v1' }, maxAgeMs })

test('histories of correct objects are linearizable, also with unknown outcomes', () => {
  for (let seed = 1; seed <= 15; seed++) {
    assertGood(register, registerHistory(seed))
    assertGood(counter, counterHistory(seed))
    assertGood(lists, listsHistory(seed, { ...FEW, operations: 150 }))
    assertGood(limitedUses, tokenHistory(seed, seed * 10))
  }
})

test('thousands of operations are checked within seconds', () => {
  const startedMs = performance.now()
  assertGood(register, registerHistory(1, MANY))
  assertGood(register, registerHistory(2, { ...MANY, unknown: 0.3 }))
  assertGood(counter, counterHistory(1, MANY))
  assertGood(lists, listsHistory(1, MANY))
  assertGood(limitedUses, tokenHistory(1, 500, MANY))
  assert.ok(performance.now() - startedMs < 20_000)
})

test('a stale read is found and shown with the newer operation before it', () => {
  for (let seed = 1; seed <= 5; seed++) {
    const history = registerHistory(seed)
    const stale = planted(history, seed, (read) => {
      if (read.result?.kind !== 'value') return undefined
      const before = history.findLast(({ respondedMs, result }) => {
        return respondedMs < read.invokedMs && result?.kind === 'written' && result.version > 1
      })
      const older = history.find(({ result }) => {
        return before?.result?.kind === 'written' && result?.kind === 'value' && result.version < before.result.version
      })
      return older?.result && { ...read, result: older.result }
    })
    reportOf(register, stale, 2)
  }
})

test('a lost write is found: an acknowledged version has another value later', () => {
  for (let seed = 1; seed <= 5; seed++) {
    const history = registerHistory(seed)
    // As if the write had been acknowledged by a server that was replaced, and another one took its version.
    const lost = planted(history, seed, (write) => {
      if (write.result?.kind !== 'written' || write.input.kind === 'read') return undefined
      const { value } = write.input
      const isRead = history.some(({ result }) => result?.kind === 'value' && result.value === value)
      return isRead ? { ...write, input: { ...write.input, value: 'lost' } } : undefined
    })
    const report = reportOf(register, lost, 2)
    assert.match(report, /lost/)
  }
})

test('two successful check-and-set operations on one version are found', () => {
  for (let seed = 1; seed <= 5; seed++) {
    const twice = planted(registerHistory(seed), seed, (cas): RegisterOperation | undefined =>
      cas.input.kind === 'cas' && cas.result?.kind === 'mismatch'
        ? { ...cas, result: { kind: 'written', version: cas.input.version + 1 } }
        : undefined,
    )
    reportOf(register, twice, 3)
  }
})

test('a mismatch of a check-and-set that took effect is found', () => {
  // As a server answers that repeats a write whose acknowledgement was lost.
  const history = [
    operationAt(1, 0, { input: { kind: 'cas', version: 0, value: 'a' }, result: { kind: 'mismatch' } }),
    operationAt(2, 2, { input: { kind: 'read' }, result: { kind: 'value', version: 1, value: 'a' } }),
  ]
  assert.match(reportOf(register, history, 2), /cas 0 a → mismatch/)
  const [first, second] = history
  assert.ok(first && second)
  assertGood(register, [{ ...first, result: undefined, respondedMs: Number.POSITIVE_INFINITY }, second])
})

test('a value that was never written, and one that is read before its write, are found', () => {
  const history = registerHistory(5)
  const phantom = planted(history, 1, (read) =>
    read.result?.kind === 'value' ? { ...read, result: { ...read.result, value: 'phantom' } } : undefined,
  )
  assert.match(reportOf(register, phantom, 20), /phantom/)
  const early = planted(history, 2, (write) =>
    write.result?.kind === 'written' && history.some(({ result }) => result?.kind === 'value' && result.version > 3)
      ? { ...write, invokedMs: write.invokedMs + 1e6, respondedMs: write.respondedMs + 1e6 }
      : undefined,
  )
  reportOf(register, early, 20)
})

test('a read that permits an age returns a state of that age, not an older one', () => {
  const writes = [timedWrite(1, 1, 0), timedWrite(2, 2, 1000)]
  assertGood(register, [...writes, staleRead(1100)])
  assert.match(reportOf(register, [...writes, staleRead(900)], 2), /max age 900 ms/)
})

test('lists that lose an element, change their order, or have half of a transaction are found', () => {
  for (let seed = 1; seed <= 5; seed++) {
    const history = listsHistory(seed, { ...FEW, operations: 150 })
    const changed = (edit: (list: string) => string) =>
      planted(history, seed, (read): ListsOperation | undefined => {
        if (read.result?.kind !== 'lists') return undefined
        const edited = Object.entries(read.result.lists).map(([name, list]) => [name, edit(list)] as const)
        const isSame = edited.every(([name, list]) => read.result?.kind === 'lists' && read.result.lists[name] === list)
        return isSame ? undefined : { ...read, result: { kind: 'lists', lists: Object.fromEntries(edited) } }
      })
    reportOf(
      lists,
      changed((list) => elements(list).slice(1).join(',')),
      3,
    )
    reportOf(
      lists,
      changed((list) => (elements(list).length > 1 ? elements(list).toReversed().join(',') : list)),
      3,
    )
  }
  const append = {
    ...listsRead(1, {}),
    input: { kind: 'append', element: 'e', to: { a: '', b: '' } },
    respondedMs: Number.POSITIVE_INFINITY,
    result: undefined,
  } as const
  assertGood(lists, [append, listsRead(2, { a: '' }), listsRead(3, { a: 'e', b: 'e' })])
  assert.match(reportOf(lists, [append, listsRead(2, { a: 'e', b: '' })], 2), /a=\[e\] b=\[\]/)
})

test('a counter that loses an addition or falls is found', () => {
  for (let seed = 1; seed <= 5; seed++) {
    const history = counterHistory(seed)
    const fallen = planted(history, seed, (operation) =>
      operation.result && operation.invokedMs > 50
        ? { ...operation, result: { value: Math.floor(operation.result.value / 2) } }
        : undefined,
    )
    reportOf(counter, fallen, 2)
  }
})

test('a use beyond the limit and a denial while uses are left are found', () => {
  for (let seed = 1; seed <= 5; seed++) {
    const twice = planted(tokenHistory(seed, 1), seed, (use): Operation<UseInput, UseResult> | undefined =>
      use.result === 'denied' ? { ...use, result: 'used' } : undefined,
    )
    // The first use may have an unknown outcome.
    const uses = twice.filter(({ result }) => result === 'used').length
    if (uses > 1) assert.match(reportOf(limitedUses, twice, 2), /use \(limit 1\) → used/)
    const early = planted(
      tokenHistory(seed, 60, { ...FEW, operations: 100 }),
      seed,
      (use): Operation<UseInput, UseResult> | undefined =>
        use.result === 'used' && use.invokedMs < 15 ? { ...use, result: 'denied' } : undefined,
    )
    assert.match(violationsOf(limitedUses, early)[0]?.report ?? '', /→ denied/)
  }
})

test('operations without an answer have an unknown outcome, and those without an effect are left out', () => {
  let nowMs = 0
  const history = new History<RegisterInput, RegisterResult>(() => nowMs++)
  const begin = (client: string, input: RegisterInput) => history.begin({ client, server: 's1', object: 'k', input })
  const first = begin('c1', { kind: 'write', value: 'a' })
  begin('c2', { kind: 'write', value: 'b' })
  begin('c3', { kind: 'write', value: 'c' }).hadNoEffect()
  first.completed({ kind: 'written', version: 1 })
  assert.throws(() => first.unknown('again'), /ended twice/)
  const operations = history.finish()
  assert.deepEqual(
    operations.map(({ client, invokedMs, respondedMs, result }) => [client, invokedMs, respondedMs, result]),
    [
      ['c1', 0, 3, { kind: 'written', version: 1 }],
      ['c2', 1, Number.POSITIVE_INFINITY, undefined],
    ],
  )
})

test('two servers that are active at the same time are found', () => {
  const good = [seen('s1', 't1', 0), seen('s1', 't1', 10), seen('s2', 't2', 12), seen('s1', 't3', 20)]
  assert.deepEqual(overlappingActivities(good), [])
  const stale = overlappingActivities([...good, seen('s1', 't1', 15)])
  assert.deepEqual(stale, ['s1 since t1 is active between 1 and 15 ms, but s2 named s2 since t2 at 12 ms'])
})
