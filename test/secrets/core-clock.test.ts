import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreClock, machineClock } from '../../src/secrets/core-clock.ts'
import { Random } from '../helpers/frames.ts'

const HOUR = 3_600_000
const DAY = 24 * HOUR

class Machine {
  wallMs = 1_800_000_000_000
  elapsedMs = 5000
  readonly clock = new CoreClock({ wall: () => this.wallMs, elapsed: () => this.elapsedMs })

  pass(ms: number): void {
    this.wallMs += ms
    this.elapsedMs += ms
  }
}

test('the core clock equals a steady machine clock to the millisecond', () => {
  const machine = new Machine()
  for (let i = 0; i < 1000; i++) {
    machine.pass(i * 7)
    if (i % 10 === 0) assert.equal(machine.clock.now(), machine.wallMs)
  }
})

test('after the machine clock was set, the core clock runs 10 % faster or slower until both agree', () => {
  const machine = new Machine()
  const began = machine.clock.now()
  machine.wallMs += 6 * HOUR
  assert.equal(machine.clock.now(), began)
  machine.pass(HOUR)
  assert.equal(machine.clock.now(), began + 1.1 * HOUR)
  for (let hour = 1; hour < 61; hour++) {
    machine.pass(HOUR)
    machine.clock.now()
  }
  assert.equal(machine.clock.now(), machine.wallMs)
  machine.wallMs -= 2 * HOUR
  const at = machine.clock.now()
  machine.pass(HOUR)
  assert.equal(machine.clock.now(), at + 0.9 * HOUR)
})

test('a TTL deviates by at most 10 % regardless of changes to the machine clock', () => {
  const random = new Random(11)
  for (let round = 0; round < 50; round++) {
    const machine = new Machine()
    const began = machine.clock.now()
    let [passedMs, last] = [0, began]
    for (let step = 0; step < 200; step++) {
      if (random.between(0, 3) === 0) machine.wallMs += random.between(-10 * HOUR, 10 * HOUR)
      const ms = random.between(0, 600_000)
      machine.pass(ms)
      passedMs += ms
      const now = machine.clock.now()
      assert.ok(now >= last)
      last = now
      const told = now - began
      assert.ok(told >= passedMs * 0.9 - 2 && told <= passedMs * 1.1 + 2, `${told} of ${passedMs}`)
    }
  }
})

test('a start trusts the machine clock unless it is before the persisted time', () => {
  const machine = new Machine()
  const mark = machine.wallMs + 5 * HOUR
  assert.equal(machine.clock.begin(mark), false)
  assert.equal(machine.clock.now(), mark)
  assert.equal(machine.clock.certain(), machine.wallMs)
  assert.equal(machine.clock.begin(machine.wallMs - HOUR), false)
  assert.equal(machine.clock.now(), machine.wallMs)
  assert.equal(machine.clock.begin(machine.wallMs + DAY + 1), true, 'such a mark was the mistake')
  assert.equal(machine.clock.now(), machine.wallMs)
  assert.equal(machine.clock.begin(mark, machine.wallMs + DAY + 1), true, 'the other mark counts')
  assert.equal(machine.clock.now(), mark)
})

test('the core clock and the machine clock agree on this machine', () => {
  const { elapsed, wall } = machineClock()
  const [from, to] = [elapsed(), elapsed()]
  assert.ok(to >= from)
  assert.ok(Math.abs(wall() - Date.now()) < 60_000)
})

test('the core clock advances to that of another server, and does not go back to its machine', () => {
  const machine = new Machine()
  const began = machine.clock.now()
  machine.clock.advanceTo(began + HOUR)
  assert.equal(machine.clock.now(), began + HOUR)
  machine.clock.advanceTo(began)
  machine.clock.advanceTo(began + 2 * DAY)
  assert.equal(machine.clock.now(), began + HOUR)
})
