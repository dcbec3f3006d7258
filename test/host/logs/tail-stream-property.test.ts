/**
 * `fs/stream` under random file operations, against two models.
 *
 * *Lockstep*: everybody has caught up before each operation, so what a follower gets is known to the byte and the event.
 * *Wild*: nobody waits. A file is then a row of generations, each begun by a truncation or a rewrite, and a follower's
 * output a row of segments, cut at its events: each segment must be a piece of one generation, in their order, without a
 * gap inside, and the last one must be the last generation to its end. Slow followers are always judged that way.
 */
import assert from 'node:assert/strict'
import { appendFileSync, chmodSync, renameSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { Random } from '../../helpers/frames.ts'
import { TailClient } from '../../helpers/tail-client.ts'
import { startTailHost, type TailAllocation } from '../../helpers/tail-host.ts'

const RUNS = Number(process.env['TAIL_RUNS'] ?? 60)
const AT_ONCE = 12

interface Follower {
  readonly client: TailClient
  readonly slow: boolean
  /** Generation that was current when it joined, and its first byte. */
  readonly joined: number
  readonly start: number
  /** What it must have got by now, when everybody is in step. */
  expected: Buffer[]
  events: number
}

class World {
  readonly #path: string
  readonly #alloc: TailAllocation
  readonly #random: Random
  readonly #lockstep: boolean
  readonly followers: Follower[] = []
  readonly generations: Buffer[] = [Buffer.alloc(0)]

  constructor(alloc: TailAllocation, random: Random) {
    this.#alloc = alloc
    this.#random = random
    this.#lockstep = random.chance(0.5)
    this.#path = join(alloc.directory, 'f.log')
    writeFileSync(this.#path, '')
    if (random.chance(0.7)) this.#append(random.pick([1, 100, 5000, 70_000, 200_000]))
  }

  get #content(): Buffer {
    return this.generations.at(-1) ?? Buffer.alloc(0)
  }

  async run(): Promise<void> {
    const random = this.#random
    await this.#join()
    for (let count = random.between(3, 14); count > 0; count--) {
      if (this.#lockstep) await this.#settle()
      await random.pick<() => unknown>([
        () => this.#append(random.pick([1, 10, 300, 3000])),
        () => this.#append(random.pick([1, 10, 300, 3000])),
        () => this.#append(random.pick([60_000, 65_536, 65_537, 300_000])),
        () => this.#truncate(),
        () => this.#rewrite(),
        () => chmodSync(this.#path, random.pick([0o600, 0o644, 0o200])),
        () => delay(random.between(0, 30)),
        () => this.#join(),
        () => this.#toggleSlow(),
      ])()
    }
    if (this.#lockstep) await this.#settle()
    for (const { client } of this.followers) client.resume()
    // Past every start, so that whoever waits beyond the end has something to get.
    const furthest = Math.max(...this.followers.map(({ start }) => start))
    this.#append(Math.max(1, furthest + 1 - this.#content.length))
    const removed = random.chance(0.6)
    if (removed) this.#remove()
    for (const follower of this.followers) await this.#finish(follower, removed)
  }

  async #join(): Promise<void> {
    const random = this.#random
    const size = this.#content.length
    const origin = random.pick(['start', 'end'])
    const offset = random.pick([0, 0, random.between(0, size), this.#lockstep ? size : size + random.between(0, 20)])
    const client = new TailClient(this.#alloc.streamUrl('f.log', { origin, offset }))
    await client.open()
    assert.equal(client.status, 200)
    const start = origin === 'start' ? offset : Math.max(size - offset, 0)
    const slow = random.chance(0.3)
    if (slow) client.pause()
    const expected = [this.#content.subarray(Math.min(start, size))]
    this.followers.push({ client, slow, joined: this.generations.length - 1, start, expected, events: 0 })
  }

  #toggleSlow(): void {
    for (const { client, slow } of this.followers) {
      if (slow) {
        if (this.#random.chance(0.5)) client.pause()
        else client.resume()
      }
    }
  }

  #append(bytes: number): void {
    const data = this.#random.bytes(bytes)
    appendFileSync(this.#path, data)
    this.generations[this.generations.length - 1] = Buffer.concat([this.#content, data])
    for (const follower of this.followers) {
      follower.expected.push(data)
    }
  }

  #truncate(): void {
    const size = this.#random.pick([0, this.#random.between(0, Math.max(this.#content.length - 1, 0))])
    if (size === this.#content.length) return
    truncateSync(this.#path, size)
    this.#began(this.#content.subarray(0, size))
  }

  #rewrite(): void {
    const size = this.#content.length
    const least = 40 // anything shorter might by chance begin like its forerunner
    if (size < least) return
    const data = this.#random.bytes(this.#random.pick([least, size, size, size + this.#random.between(1, 2000)]))
    writeFileSync(this.#path, data)
    this.#began(data)
  }

  #began(content: Buffer): void {
    this.generations.push(content)
    for (const follower of this.followers) {
      follower.events++
      follower.expected.push(content)
    }
  }

  #remove(): void {
    if (this.#random.chance(0.5)) unlinkSync(this.#path)
    else {
      writeFileSync(`${this.#path}.new`, 'must never be sent')
      renameSync(`${this.#path}.new`, this.#path)
    }
    if (this.#random.chance(0.3)) writeFileSync(this.#path, 'must never be sent either')
  }

  /** Waits until everybody who keeps up has all there is, and compares what they got with what they must have. */
  async #settle(): Promise<void> {
    for (const { client, slow, expected, events } of this.followers) {
      if (slow) continue
      const bytes = expected.reduce((sum, part) => sum + part.length, 0)
      await client.until(() => client.bytes >= bytes && client.events.length >= events)
      assert.ok(client.data.equals(Buffer.concat(expected)), 'in step, the bytes are known')
      assert.equal(client.events.length, events, 'in step, the events are known')
    }
  }

  async #finish(follower: Follower, removed: boolean): Promise<void> {
    const { client } = follower
    if (removed) {
      await client.until(() => client.ended !== undefined)
      assert.equal(client.ended, 'clean')
      const last = client.items.pop()
      assert.ok(last?.kind === 'event' && last.event === 'file deleted', 'the last word is that the file is gone')
      assert.ok(last.offset >= Math.min(this.#content.length, last.offset))
      this.#judge(follower)
      return
    }
    // The last generation is complete when its last byte is there; a broken stream will not wait.
    await client.until(() => client.ended !== undefined || this.#complete(follower))
    assert.equal(client.ended, undefined)
    await delay(3)
    this.#judge(follower)
    client.destroy()
  }

  #complete(follower: Follower): boolean {
    const segment = segmentsOf(follower).at(-1)
    const last = this.#content
    return segment !== undefined && segment.data.equals(last.subarray(Math.min(segment.start, last.length)))
  }

  #judge(follower: Follower): void {
    const segments = segmentsOf(follower)
    const limit = this.generations.length - 1 - follower.joined
    assert.ok(segments.length - 1 <= limit, `${segments.length - 1} truncations told, there were ${limit}`)
    let least = follower.joined
    for (const { start, data } of segments) {
      const at = this.generations.findIndex(
        (content, index) => index >= least && content.subarray(start, start + data.length).equals(data),
      )
      assert.ok(at >= 0, `a segment of ${data.length} bytes at ${start} is in no generation from ${least} on`)
      // Not beyond it: who has nothing to compare with may get bytes of a new generation before it is told of it.
      least = at
    }
    const told = JSON.stringify(segments.map(({ start, data }) => [start, data.length]))
    const had = JSON.stringify(this.generations.map((content) => content.length))
    assert.ok(this.#complete(follower), `the last generation is not there to its end: ${told} of ${had}`)
  }
}

function segmentsOf(follower: Follower): { start: number; data: Buffer }[] {
  const segments: { start: number; parts: Buffer[] }[] = [{ start: follower.start, parts: [] }]
  let position = follower.start
  for (const item of follower.client.items) {
    const segment = segments.at(-1)
    if (item.kind === 'event') {
      assert.deepEqual([item.event, item.offset, item.file], ['file truncated', 0, 'f.log'])
      segments.push({ start: 0, parts: [] })
      position = 0
    } else {
      position += item.data.length
      assert.equal(item.offset, position, 'the offset is the end of the data')
      segment?.parts.push(item.data)
    }
  }
  return segments.map(({ start, parts }) => ({ start, data: Buffer.concat(parts) }))
}

test(`fs/stream: ${RUNS} random runs deliver every byte once and report all events`, async (t) => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 1e9)
  const host = await startTailHost(t)
  let next = 0
  const worker = async () => {
    while (next < RUNS) {
      const run = next++
      try {
        await new World(host.another(), new Random(seed + run)).run()
      } catch (error) {
        throw new Error(`OUTPOST_SEED=${seed + run} TAIL_RUNS=1: ${String(error)}`, { cause: error })
      }
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  await t.waitFor(() => assert.equal(host.followers.count, 0), { timeout: 60_000 })
  assert.deepEqual([host.followers.files.size, host.followers.watches.size], [0, 0])
})
