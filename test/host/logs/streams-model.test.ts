/**
 * `fs/logs` and `fs/stream` with everything they take beyond the compatible system, in all combinations, against a model that holds whole
 * logs as strings: tail_lines, since, grep with context and inversion, several logs in one stream, framed and plain, once
 * and followed to the task's end, and gone on with from the cursor of any frame.
 */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import type { Allocation } from '../../../src/host/allocations/allocation.ts'
import { Followers } from '../../../src/host/logs/follow/followers.ts'
import type { LogPosition } from '../../../src/host/logs/locate/log-files.ts'
import { fsLogs } from '../../../src/host/logs/task-logs.ts'
import { fsStream } from '../../../src/host/logs/file-stream.ts'
import { type AnyOperation, type Chunk, isStreamHead } from '../../../src/platform/operation.ts'
import { FrameReader, Random } from '../../helpers/frames.ts'
import { linesIn, naiveGrep, type NaiveSearch } from '../../helpers/grep-model.ts'
import { type NaiveFile, naiveSince, naiveTail } from '../../helpers/log-model.ts'
import { randomLog } from '../../helpers/random-log.ts'
import { ALLOC_ID, allocationIn, type Query, taskOf } from '../../helpers/tail-host.ts'
import { performed, recordingLogger } from '../allocations/host-fixture.ts'

const LOGS = Number(process.env['MODEL_LOGS'] ?? 200)
/** While one waits for a thread, others go on. */
const AT_ONCE = 8
/** A hundred thousand small files are made here: in memory, where there is a place for them. */
const MEMORY = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()
const PATTERNS = [
  'x',
  'xx x',
  'INFO',
  'at ',
  '^$',
  '^\\s*x+$',
  'T\\d\\d:',
  '\\d{3}[^\\d]',
  'Z$|x$',
  'nothing',
  '(?:a|x)t?',
] as const
const TASKS = ['web', 'db']

/** One log of the allocation. */
interface Log {
  readonly task: string
  readonly type: string
  readonly files: readonly NaiveFile[]
}

/** The allocation on the disk, rewritten for each run. */
class Site {
  readonly #directory: string
  readonly #logs: AnyOperation
  readonly #stream: AnyOperation
  readonly followers: Followers

  constructor(t: TestContext) {
    this.#directory = realpathSync(mkdtempSync(join(MEMORY, 'outpost-test-')))
    t.after(() => rmSync(this.#directory, { recursive: true, force: true }))
    const tasks = new Map(TASKS.map((name) => [name, taskOf(name, { state: 'dead' })]))
    const allocation: Allocation = allocationIn(this.#directory, { tasks })
    const allocations = { get: () => allocation, all: () => [allocation].values() }
    this.followers = new Followers({ limit: 0, logger: recordingLogger() })
    this.#logs = fsLogs.in({ allocations, followers: this.followers })
    this.#stream = fsStream.in({ allocations, followers: this.followers })
  }

  /** Writes the logs; returns them with the modification times that the files really have. */
  write(logs: readonly Log[]): Log[] {
    const directory = join(this.#directory, 'alloc/logs')
    rmSync(directory, { recursive: true, force: true })
    mkdirSync(directory, { recursive: true })
    return logs.map((log) => {
      const files = log.files.map((file) => {
        const path = join(directory, `${log.task}.${log.type}.${file.index}`)
        writeFileSync(path, file.text, 'latin1')
        utimesSync(path, file.modifiedMs / 1000, file.modifiedMs / 1000)
        return { ...file, modifiedMs: Number(statSync(path, { bigint: true }).mtimeNs) / 1e6 }
      })
      return { ...log, files }
    })
  }

  /** Of one file with `path`, else of logs. */
  async ask(query: Query): Promise<Buffer> {
    const operation = 'path' in query ? this.#stream : this.#logs
    const input = operation.input.parse({
      params: { alloc_id: ALLOC_ID },
      query: Object.entries(query).map(([key, value]) => [key, String(value)]),
      headers: {},
      body: undefined,
    })
    const parts: Buffer[] = []
    for await (const chunk of performed(operation, input) as AsyncIterable<Chunk>) {
      if (!isStreamHead(chunk)) parts.push(Buffer.from(chunk))
    }
    return Buffer.concat(parts)
  }
}

/** Where a request begins, and the same for the model. */
interface Start {
  readonly query: Query
  readonly placeIn: (files: readonly NaiveFile[]) => LogPosition
}

const FIRST: Start = { query: {}, placeIn: ([first]) => ({ index: first?.index ?? 0, offset: 0 }) }

function later(a: LogPosition, b: LogPosition): LogPosition {
  return a.index > b.index || (a.index === b.index && a.offset > b.offset) ? a : b
}

function randomStart(random: Random, fromMs: number, toMs: number): Start {
  const lines = random.pick([0, 1, 3, random.between(0, 60), 1e6])
  const sinceMs = random.between(fromMs - 1000, toMs + 1000)
  const byLines: Start = { query: { tail_lines: lines }, placeIn: (files) => naiveTail(files, lines) }
  const byTime: Start = {
    query: { since: new Date(sinceMs).toISOString() },
    placeIn: (files) => naiveSince(files, sinceMs),
  }
  const both: Start = {
    query: { ...byLines.query, ...byTime.query },
    placeIn: (files) => later(byLines.placeIn(files), byTime.placeIn(files)),
  }
  return random.pick([FIRST, byLines, byTime, both])
}

function randomSearch(random: Random): { query: Query; search: NaiveSearch | undefined } {
  if (random.chance(0.35)) return { query: {}, search: undefined }
  const pattern = random.pick(PATTERNS)
  const invert = random.chance(0.3)
  const context = random.pick([0, 0, 1, 3, 100])
  return {
    query: { grep: pattern, grep_invert: invert, grep_context: context },
    search: { pattern: new RegExp(pattern), invert, context },
  }
}

function textFrom(files: readonly NaiveFile[], place: LogPosition): string {
  return files
    .filter(({ index }) => index >= place.index)
    .map(({ index, text }) => (index === place.index ? text.slice(place.offset) : text))
    .join('')
}

interface DataFrame {
  readonly log: string
  readonly index: number
  readonly text: string
  readonly offset: number
  readonly cursor: string | undefined
}

function framesIn(bytes: Buffer): DataFrame[] {
  const reader = new FrameReader()
  const frames = reader.push(bytes)
  assert.equal(reader.pending, 0)
  return frames.flatMap((frame) => {
    assert.equal(frame.FileEvent, undefined)
    if (frame.Data === undefined) return []
    const [, log = '', index = ''] = /^alloc\/logs\/(.*)\.(\d+)$/.exec(frame.File ?? '') ?? []
    const text = Buffer.from(frame.Data, 'base64').toString('latin1')
    return [{ log, index: Number(index), text, offset: frame.Offset ?? 0, cursor: frame.Cursor }]
  })
}

/** A log as if one of its files were all of it. */
function oneFile(random: Random, [log]: readonly Log[]): Log[] | undefined {
  const file = log?.files[random.between(0, log.files.length - 1)]
  return log && file && [{ ...log, files: [file] }]
}

function pathOf([log]: readonly Log[]): string {
  return log ? `alloc/logs/${nameOf(log)}.${log.files[0]?.index}` : ''
}

const nameOf = ({ task, type }: Log) => `${task}.${type}`

/** What the frames give of each log. */
function byLog(frames: readonly DataFrame[]): Map<string, string> {
  const texts = new Map<string, string>()
  for (const { log, text } of frames) texts.set(log, (texts.get(log) ?? '') + text)
  return texts
}

/** One request, and how it goes on from one of its frames. */
class Run {
  readonly #site: Site
  readonly #random: Random
  readonly #logs: readonly Log[]
  readonly #query: Query
  /** What is to come of each log. */
  readonly #expected: ReadonlyMap<string, string>
  readonly #searching: boolean

  constructor(site: Site, random: Random, logs: readonly Log[], times: { fromMs: number; toMs: number }) {
    this.#site = site
    this.#random = random
    const task = logs.length > 1 ? random.pick(['*', 'web']) : 'web'
    const type = logs.length > 1 ? random.pick(['*', 'stdout']) : 'stdout'
    const chosen = logs.filter((log) => [log.task, '*'].includes(task) && [log.type, '*'].includes(type))
    const one = random.chance(0.15) ? oneFile(random, chosen) : undefined
    this.#logs = one ?? chosen
    const start = randomStart(random, times.fromMs, times.toMs)
    const { query, search } = randomSearch(random)
    const follow: Query = random.chance(0.2) ? { follow: true, end_when_done: true } : {}
    const what = one ? { path: pathOf(one), offset: 0, follow: false } : { task, type, ...follow }
    this.#query = { ...what, ...start.query, ...query }
    this.#searching = search !== undefined
    this.#expected = new Map(
      this.#logs.map((log) => {
        const text = textFrom(log.files, start.placeIn(log.files))
        return [nameOf(log), search ? naiveGrep(text, search) : text] as const
      }),
    )
  }

  async check(): Promise<void> {
    if (this.#random.chance(0.3) && !('path' in this.#query)) await this.#checkPlain()
    else await this.#checkFramed()
  }

  get shown(): string {
    return JSON.stringify({ query: this.#query, logs: this.#logs.map((log) => [nameOf(log), log.files]) })
  }

  /** Of several logs only whole lines come, and the order of each. */
  async #checkPlain(): Promise<void> {
    const text = (await this.#site.ask({ ...this.#query, plain: true })).toString('latin1')
    const [one = ''] = this.#expected.values()
    if (this.#logs.length === 1) return assert.equal(text, one)
    const expected = [...this.#expected.values()]
    const length = expected.reduce((sum, each) => sum + each.length, 0)
    assert.equal(text.length, length)
    const unfinished = expected.filter((each) => each !== '' && !each.endsWith('\n')).length
    if (unfinished < 2) assert.deepEqual(linesIn(text).toSorted(), expected.flatMap(linesIn).toSorted())
  }

  async #checkFramed(): Promise<void> {
    const resumable = this.#random.chance(0.6)
    const frames = framesIn(await this.#site.ask({ ...this.#query, ...(resumable ? { cursor: '' } : {}) }))
    this.#compare(frames, new Map())
    for (const frame of frames) this.#checkFrame(frame, resumable)
    if (!resumable || frames.length === 0) return
    const at = this.#random.between(0, frames.length - 1)
    const rest = framesIn(await this.#site.ask({ ...this.#query, cursor: frames[at]?.cursor ?? '' }))
    this.#compare(rest, byLog(frames.slice(0, at + 1)))
  }

  #compare(frames: readonly DataFrame[], before: ReadonlyMap<string, string>): void {
    const got = byLog(frames)
    for (const [log, text] of this.#expected) assert.equal((before.get(log) ?? '') + (got.get(log) ?? ''), text, log)
    for (const log of got.keys()) assert.ok(this.#expected.has(log), log)
  }

  #checkFrame({ log, index, text, offset, cursor }: DataFrame, resumable: boolean): void {
    assert.equal(cursor !== undefined, resumable)
    const file = this.#logs.find((each) => nameOf(each) === log)?.files.find((each) => each.index === index)
    const before = file?.text.slice(0, offset) ?? ''
    // A line may have begun in an earlier file.
    const last = this.#searching ? (linesIn(text).at(-1) ?? '') : text
    assert.ok(before.endsWith(last) || (this.#searching && last.endsWith(before) && before !== ''), `${log}.${index}`)
  }
}

async function oneSite(site: Site, random: Random): Promise<void> {
  const fromMs = Date.UTC(2026, random.between(0, 11), random.between(1, 28))
  const shape = { steady: random.chance(0.5), startMs: fromMs, large: false }
  const several = random.chance(0.2)
  const names = TASKS.flatMap((task) => ['stdout', 'stderr'].map((type) => ({ task, type })))
  const chosen = names.filter((_, at) => at === 0 || (several && random.chance(0.8)))
  const made = chosen.map((name) => ({ ...name, ...randomLog(random, shape) }))
  const logs = site.write(made)
  const toMs = Math.max(...made.map(({ endMs }) => endMs))
  for (let count = 0; count < 2; count++) {
    const run = new Run(site, random, logs, { fromMs, toMs })
    try {
      await run.check()
    } catch (error) {
      throw new Error(`${String(error)} ${run.shown}`, { cause: error })
    }
  }
}

test(`${LOGS} random logs have start positions and output as in the model`, {
  timeout: 280_000,
}, async (t) => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 1e9)
  let next = 0
  const worker = async () => {
    const site = new Site(t)
    while (next < LOGS) {
      const log = next++
      try {
        await oneSite(site, new Random(seed + log))
      } catch (error) {
        next = LOGS
        throw new Error(`OUTPOST_SEED=${seed + log} MODEL_LOGS=1: ${String(error)}`, { cause: error })
      }
    }
    assert.equal(site.followers.count, 0)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
})
