/**
 * `fs/logs` followed under random writing, rotation, purging, truncation and deletion, against models.
 *
 * *Lockstep*: everybody has caught up before each operation, so bytes and events are known exactly, framed and plain.
 * *Wild*: a writer as logmon is (append, rotate with gaps in the index, purge what was read, add to the old file late)
 * that waits for nobody, and followers of which some stop reading for a while: each file's bytes must come whole, once and
 * in order, and plain is the frames' data in the order of the files.
 */
import assert from 'node:assert/strict'
import { appendFileSync, chmodSync, renameSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { Random } from '../../helpers/frames.ts'
import { TailClient } from '../../helpers/tail-client.ts'
import { startTailHost, type TailAllocation } from '../../helpers/tail-host.ts'

const RUNS = Number(process.env['TAIL_RUNS'] ?? 60)
const AT_ONCE = 12

interface Follower {
  readonly client: TailClient
  readonly framed: boolean
  readonly slow: boolean
  readonly joinedAt: { index: number; offset: number }
  expected: Buffer[]
  readonly events: string[]
}

/** One task's log and everybody who follows it. */
class World {
  readonly #alloc: TailAllocation
  readonly #random: Random
  readonly #lockstep: boolean
  /** All files there ever were, by index. */
  readonly #files = new Map<number, Buffer>()
  /** Indexes that exist. */
  #live: number[] = []
  readonly followers: Follower[] = []

  constructor(alloc: TailAllocation, random: Random) {
    this.#alloc = alloc
    this.#random = random
    this.#lockstep = random.chance(0.5)
    this.#create(random.pick([0, 0, 7]))
    for (let count = random.between(0, 3); count > 0; count--) {
      this.#append(random.pick([0, 50, 70_000]))
      this.#create(this.#newest + this.#gap())
    }
    this.#append(random.pick([0, 1, 5000]))
  }

  get #newest(): number {
    return this.#live.at(-1) ?? -1
  }

  async run(): Promise<void> {
    const random = this.#random
    await this.#join()
    const always = [
      () => this.#append(random.pick([1, 30, 2000])),
      () => this.#append(random.pick([1, 30, 2000])),
      () => this.#append(random.pick([65_536, 66_000, 150_000])),
      () => this.#rotate(),
      () => this.#rotate(),
      () => this.#rotateLate(),
      () => this.#purge(),
      () => this.#join(),
      () => delay(random.between(0, 25)),
      () => this.#toggleSlow(),
    ] as const
    const lockstep = [
      () => this.#truncate(),
      () => this.#rewrite(),
      () => this.#replace(),
      () => this.#deleteNewest(),
      () => this.#startAgain(),
      () => chmodSync(this.#alloc.log(this.#newest), 0o600),
    ] as const
    for (let count = random.between(4, 14); count > 0; count--) {
      if (this.#lockstep) await this.#settle()
      await random.pick<() => unknown>(this.#lockstep ? [...always, ...lockstep] : [...always])()
    }
    for (const { client } of this.followers) client.resume()
    for (const follower of this.followers) await this.#finish(follower)
  }

  #gap(): number {
    return this.#random.chance(0.25) ? this.#random.between(2, 11) : 1
  }

  async #join(): Promise<void> {
    const random = this.#random
    const framed = random.chance(0.6)
    const origin = random.pick(['start', 'end'])
    const offset = random.pick([0, 0, random.between(0, 100)])
    const sizes = this.#live.map((index) => ({ index, size: this.#content(index).length }))
    const client = new TailClient(this.#alloc.logsUrl({ follow: true, plain: !framed, origin, offset }), { framed })
    await client.open()
    assert.equal(client.status, 200)
    const slow = !this.#lockstep && random.chance(0.4)
    if (slow) client.pause()
    const joinedAt = startOf(sizes, origin, offset)
    const expected = sizes
      .filter(({ index }) => index >= joinedAt.index)
      .map(({ index }) => this.#content(index).subarray(index === joinedAt.index ? joinedAt.offset : 0))
    this.followers.push({ client, framed, slow, joinedAt, expected, events: [] })
  }

  #toggleSlow(): void {
    for (const { client, slow } of this.followers) {
      if (slow && this.#random.chance(0.5)) client.pause()
      else client.resume()
    }
  }

  #content(index: number): Buffer {
    return this.#files.get(index) ?? Buffer.alloc(0)
  }

  #create(index: number, content: Buffer = Buffer.alloc(0)): void {
    writeFileSync(this.#alloc.log(index), content)
    this.#files.set(index, content)
    this.#live = [...this.#live.filter((other) => other !== index), index].sort((a, b) => a - b)
    this.#expect(content)
  }

  #expect(data: Buffer, event?: string): void {
    for (const follower of this.followers) {
      if (event !== undefined) follower.events.push(event)
      follower.expected.push(data)
    }
  }

  #append(bytes: number, index = this.#newest): void {
    const data = this.#random.bytes(bytes)
    appendFileSync(this.#alloc.log(index), data)
    this.#files.set(index, Buffer.concat([this.#content(index), data]))
    this.#expect(data)
  }

  #rotate(): void {
    this.#append(this.#random.pick([0, 40, 3000]))
    this.#create(this.#newest + this.#gap())
    if (this.#random.chance(0.6)) this.#append(this.#random.between(0, 4000))
  }

  /** A writer that adds to the old file after the new one is there. */
  async #rotateLate(): Promise<void> {
    const old = this.#newest
    this.#create(old + this.#gap())
    await delay(this.#random.between(0, 5))
    this.#append(this.#random.between(1, 2000), old)
    // Plain followers see the order in which things were noticed; so nothing more until the late bytes are there.
    await this.#allCaughtUp()
  }

  /** Removes the oldest file, once all have read it: what is purged before that is rightly lost. */
  async #purge(): Promise<void> {
    const [oldest] = this.#live
    if (oldest === undefined || this.#live.length < 2) return
    await this.#allCaughtUp()
    unlinkSync(this.#alloc.log(oldest))
    this.#live.shift()
  }

  #truncate(): void {
    const content = this.#content(this.#newest)
    if (content.length === 0) return
    const size = this.#random.pick([0, this.#random.between(0, content.length - 1)])
    truncateSync(this.#alloc.log(this.#newest), size)
    this.#files.set(this.#newest, content.subarray(0, size))
    this.#expect(content.subarray(0, size), `file truncated ${this.#name(this.#newest)}`)
  }

  #rewrite(): void {
    const size = this.#content(this.#newest).length
    if (size < 40) return
    const data = this.#random.bytes(this.#random.pick([40, size, size + this.#random.between(1, 2000)]))
    writeFileSync(this.#alloc.log(this.#newest), data)
    this.#files.set(this.#newest, data)
    this.#expect(data, `file truncated ${this.#name(this.#newest)}`)
  }

  /** Another file under the newest name. */
  async #replace(): Promise<void> {
    await this.#reachNewest()
    const data = this.#random.bytes(this.#random.between(0, 3000))
    const path = this.#alloc.log(this.#newest)
    writeFileSync(`${path}.new`, data)
    renameSync(`${path}.new`, path)
    this.#files.set(this.#newest, data)
    this.#expect(data, `file deleted ${this.#name(this.#newest)}`)
  }

  /** Removes the live file; it is said, nothing older is replayed, and a higher index (or the same) goes on. */
  async #deleteNewest(): Promise<void> {
    await this.#reachNewest()
    const index = this.#newest
    unlinkSync(this.#alloc.log(index))
    this.#expect(Buffer.alloc(0), `file deleted ${this.#name(index)}`)
    await this.#settle()
    this.#live = this.#live.filter((other) => other !== index)
    this.#create(index + this.#random.pick([0, 1, 5]), this.#random.bytes(this.#random.between(0, 200)))
  }

  /** Removes all files and begins a new log, sometimes before anybody has looked. */
  async #startAgain(): Promise<void> {
    await this.#reachNewest()
    const newest = this.#newest
    for (const index of this.#live) unlinkSync(this.#alloc.log(index))
    this.#live = []
    this.#expect(Buffer.alloc(0), `file deleted ${this.#name(newest)}`)
    if (this.#random.chance(0.5)) await this.#settle()
    else await delay(this.#random.between(0, 2))
    this.#create(0, this.#random.bytes(this.#random.between(1, 200)))
  }

  /** Only bytes tell that somebody has come to a file: where the newest is empty, nobody may be there yet. */
  async #reachNewest(): Promise<void> {
    this.#append(10)
    await this.#settle()
  }

  #name(index: number): string {
    return `alloc/logs/web.stdout.${index}`
  }

  async #allCaughtUp(): Promise<void> {
    for (const { client, expected } of this.followers) {
      client.resume()
      const bytes = expected.reduce((sum, part) => sum + part.length, 0)
      await client.until(() => client.bytes >= bytes || client.ended !== undefined)
    }
  }

  /** Waits until everybody has all there is, and compares what they got with what they must have. */
  async #settle(): Promise<void> {
    for (const { client, framed, expected, events } of this.followers) {
      const bytes = expected.reduce((sum, part) => sum + part.length, 0)
      await client.until(() => client.bytes >= bytes && (!framed || client.events.length >= events.length))
      assert.ok(client.data.equals(Buffer.concat(expected)), 'in step, the bytes are known')
      if (framed) assert.deepEqual(client.events, events)
    }
  }

  async #finish(follower: Follower): Promise<void> {
    const { client, expected } = follower
    const whole = Buffer.concat(expected)
    await client.until(() => client.bytes >= whole.length || client.ended !== undefined)
    assert.equal(client.ended, undefined)
    assert.equal(client.bytes, whole.length)
    assert.ok(client.data.equals(whole), 'all bytes, in their order')
    if (follower.framed && !this.#lockstep) this.#checkOffsets(follower)
    client.destroy()
  }

  #checkOffsets({ client, joinedAt }: Follower): void {
    assert.deepEqual(client.events, [], 'a rotation is no event')
    const ends = new Map<string, number>([[this.#name(joinedAt.index), joinedAt.offset]])
    for (const item of client.items) {
      if (item.kind !== 'data') continue
      const end = (ends.get(item.file) ?? 0) + item.data.length
      assert.equal(item.offset, end, `offset in ${item.file}`)
      ends.set(item.file, end)
    }
    for (const [file, end] of ends) {
      assert.equal(end, this.#content(Number(file.split('.').at(-1))).length, `${file} to its end`)
    }
  }
}

function startOf(sizes: { index: number; size: number }[], origin: string, offset: number) {
  const total = sizes.reduce((sum, { size }) => sum + size, 0)
  const last = sizes.at(-1) ?? { index: 0, size: 0 }
  if (origin === 'end' && offset === 0) return { index: last.index, offset: 0 }
  let left = Math.max(0, origin === 'end' ? total - offset : Math.min(offset, total))
  for (const { index, size } of sizes) {
    if (left <= size && !(origin === 'end' && left === size && index !== last.index)) return { index, offset: left }
    left -= size
  }
  return { index: last.index, offset: last.size }
}

test(`fs/logs: ${RUNS} random runs deliver every byte once and report all events`, async (t) => {
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
