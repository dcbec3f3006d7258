/** A tail in the browser: how soon a line is painted, what a flood costs, and scrolling through what the page keeps. */
import { writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { ALLOC_ID, logsPath, type RunningAgent, TASK } from '../agent.ts'
import type { BenchBrowser, BenchPage, MeasuredFrames } from '../browser.ts'
import type { Helper } from '../child.ts'
import { line, LINE_BYTES, lines } from '../content.ts'
import { type Options, plainNumber, type Row, WrongContent } from '../figure.ts'
import { checkAgainst, Follower } from '../follower.ts'
import { cpuSeconds, inTurn, nowMs, percentile } from '../measure.ts'
import type { Answer, Order } from '../writer.ts'

const EVERY_MS = 20
const LINES_PER_SECOND = 20_000
/** What the page keeps of a log. */
const KEPT = 100_000
const SETTLE_MS = 1000
const LOST_MS = 60_000
const MILLION = 1_000_000
const LIMITS = { lineMs: 50, frameMs: 16, heapMiB: 150, longestMs: 50 }

export type Writer = Helper<Order, Answer>

export interface TailParts {
  readonly agent: RunningAgent
  readonly browser: BenchBrowser
  readonly writer: Writer
  /** Frames and memory of an empty page. */
  readonly rest: MeasuredFrames & { readonly heapMiB: number }
}

const numbered = (number: number) => line(number).toString().split(' ', 1)[0] ?? ''

/** A page that follows the log, which has the line 0. */
async function openTail({ agent, browser }: TailParts): Promise<BenchPage> {
  agent.site.removeLogs()
  writeFileSync(agent.site.logFile(0), line(0))
  const page = await browser.page({ loaded: '[role=log] .log-row' })
  await page.open(`http://127.0.0.1:${agent.port}/ui/logs/${ALLOC_ID}/${TASK}`)
  await pause(SETTLE_MS)
  await page.evaluate('bench.watchLines()')
  return page
}

/** Waits until the last line is painted; fails if it never is. */
async function lastLine(page: BenchPage, number: number): Promise<void> {
  const script = `bench.painted('[role=log] .log-row', ${JSON.stringify(numbered(number))})`
  const isThere = await Promise.race([page.evaluate(script).then(() => true), pause(LOST_MS, false, { ref: false })])
  if (!isThere) throw new WrongContent(`line ${number} was not painted: ${await page.text('.view-head')}`)
}

/** A client that follows the log beside or instead of the page; `framed` sends the request of the page. */
async function follow({ port }: RunningAgent, count: number, framed: boolean): Promise<Follower> {
  const expected = lines(count + 1)
  const path = logsPath({ framed, follow: true }) + (framed ? '&cursor=&end_when_done=true' : '')
  const follower = new Follower({ port, path, framed, total: expected.length, check: checkAgainst(expected) })
  await follower.ready
  await pause(SETTLE_MS)
  return follower
}

export async function lineToPaint(parts: TailParts, options: Options): Promise<Row[]> {
  const count = options.quick ? 100 : 500
  const [painted, received]: [number[][], number[][]] = [[], []]
  await inTurn(Math.min(options.rounds, 3), [
    async () => {
      const run = await oneRun(parts, count)
      painted.push(run.painted)
      received.push(run.received)
    },
  ])
  return ([0.5, 0.99] as const).map((part) => ({
    figure: `line written to line painted by a browser, p${part * 100}`,
    unit: 'ms',
    ours: painted.map((run) => percentile(run, part)),
    peer: { name: 'the same lines at a plain follower', runs: received.map((run) => percentile(run, part)) },
    note: `at most ${LIMITS.lineMs}`,
  }))
}

async function oneRun(parts: TailParts, count: number): Promise<{ painted: number[]; received: number[] }> {
  const { agent, writer } = parts
  const page = await openTail(parts)
  const follower = await follow(agent, count, false)
  writer.send({ kind: 'lines', file: agent.site.logFile(0), first: 1, count, everyMs: EVERY_MS })
  const written = await writer.next()
  await Promise.race([follower.done, pause(LOST_MS, undefined, { ref: false })])
  await lastLine(page, count)
  follower.close()
  const offsetMs = await page.clockOffsetMs()
  const times = await page.numbers(`bench.paintedLines(${count + 1})`)
  await page.close()
  if (follower.fault !== undefined) throw new WrongContent(`follow beside a browser: ${follower.fault}`)
  const painted = written.map((atMs, index) => (times[index + 1] ?? 0) + offsetMs - atMs)
  if (painted.some((ms) => ms < 0)) throw new WrongContent('a line was not painted')
  return { painted, received: follower.latenciesMs(written, LINE_BYTES, LINE_BYTES) }
}

interface Flood {
  readonly frames: MeasuredFrames
  readonly peakMiB: number
  readonly heapMiB: number
  /** From the last write to the frame with the last line. */
  readonly behindMs: number
  readonly cpuSeconds: number
  readonly busyShare: number
}

export async function floodAndScroll(parts: TailParts, options: Options): Promise<Row[]> {
  const count = options.quick ? 150_000 : MILLION
  const page = await openTail(parts)
  const flood = await floodPage(parts, page, count)
  await checkKept(page, count)
  const scrolled = await scrollAll(parts.browser, page)
  await page.close()
  const followed = options.quick ? 50_000 : 200_000
  const framed = await floodFollower(parts, followed, true)
  const plain = await floodFollower(parts, followed, false)
  return rowsOf(parts, { count, flood, scrolled, framed, plain })
}

async function floodPage({ agent, browser, writer }: TailParts, page: BenchPage, count: number): Promise<Flood> {
  const file = agent.site.logFile(0)
  let peakMiB = 0
  const watch = setInterval(() => void page.heapMiB().then((now) => (peakMiB = Math.max(peakMiB, now))), 1000)
  const [cpuBefore, busyBefore, beganMs] = [cpuSeconds(agent.pid), await page.busySeconds(), nowMs()]
  const end = await page.watchFrames(browser)
  writer.send({ kind: 'rate', file, first: 1, count, linesPerSecond: LINES_PER_SECOND })
  const [firstMs = 0, lastMs = 0] = await writer.next()
  await lastLine(page, count)
  const frames = await end()
  const used = cpuSeconds(agent.pid) - cpuBefore
  const busyShare = ((await page.busySeconds()) - busyBefore) / ((nowMs() - beganMs) / 1000)
  clearInterval(watch)
  const rate = count / ((lastMs - firstMs) / 1000)
  if (rate < LINES_PER_SECOND * 0.9) process.stderr.write(`the writer managed ${plainNumber(rate)} lines a second\n`)
  const times = await page.numbers(`[bench.paintedLines(${count + 1}).at(-1)]`)
  const behindMs = (times[0] ?? Number.NaN) + (await page.clockOffsetMs()) - lastMs
  await page.collectGarbage()
  return { frames, peakMiB, heapMiB: await page.heapMiB(), behindMs, cpuSeconds: used, busyShare }
}

/** The page keeps the last lines, says so, and shows the last ones in order. */
async function checkKept(page: BenchPage, count: number): Promise<void> {
  const state = await page.text('.log-state')
  if (!state.includes(`last ${KEPT.toLocaleString('en')} lines`)) throw new WrongContent(`kept lines: ${state}`)
  const removed = (count + 1 - KEPT).toLocaleString('en')
  const note = await page.text('.log-note')
  if (!note.includes(removed)) throw new WrongContent(`removed lines: ${note}, not ${removed}`)
  const shown = (await page.texts('[role=log] .log-row')).map((text) => Number(/L(\d{10}) /.exec(text)?.[1]))
  const expected = shown.map((_, index) => count - shown.length + 1 + index)
  if (shown.length < 10 || shown.join() !== expected.join()) throw new WrongContent(`shown lines: ${shown.join()}`)
}

async function scrollAll(browser: BenchBrowser, page: BenchPage): Promise<MeasuredFrames> {
  await page.page.keyboard.press('p')
  await page.evaluate(`bench.painted('.log-state', 'Paused')`)
  const frames = await page.frames(`bench.scroll('[role=log]', 300, 100)`, browser)
  if (page.errors.length > 0) throw new WrongContent(page.errors.join('; '))
  return frames
}

/** CPU seconds of the agent for a million lines to one follower, measured with fewer. */
async function floodFollower({ agent, writer }: TailParts, count: number, framed: boolean): Promise<number> {
  agent.site.removeLogs()
  const file = agent.site.logFile(0)
  writeFileSync(file, line(0))
  const follower = await follow(agent, count, framed)
  const before = cpuSeconds(agent.pid)
  writer.send({ kind: 'rate', file, first: 1, count, linesPerSecond: LINES_PER_SECOND })
  await writer.next()
  await Promise.race([follower.done, pause(LOST_MS, undefined, { ref: false })])
  const used = cpuSeconds(agent.pid) - before
  follower.close()
  if (!follower.complete) throw new WrongContent(`a follower of a flood: ${follower.fault ?? 'lines are missing'}`)
  return (used * MILLION) / count
}

interface Results {
  readonly count: number
  readonly flood: Flood
  readonly scrolled: MeasuredFrames
  /** CPU seconds of the agent for a million lines. */
  readonly framed: number
  readonly plain: number
}

const idle = (name: string, value: number) => ({ name: `idle page, ${name}`, runs: [value] })

function rowsOf({ rest }: TailParts, { count, flood, framed, plain, scrolled }: Results): Row[] {
  const what = `a browser's tail at ${LINES_PER_SECOND.toLocaleString('en')} lines/s`
  return [
    {
      figure: `${what}: between frames, p95`,
      unit: 'ms',
      ours: [percentile(flood.frames.intervals, 0.95)],
      peer: idle('p95', percentile(rest.intervals, 0.95)),
      note: `one frame of 60 Hz is 16.7; longest ${plainNumber(Math.max(...flood.frames.intervals))}`,
    },
    {
      figure: `${what}: work of a frame, p95`,
      unit: 'ms',
      ours: [percentile(flood.frames.work, 0.95)],
      peer: idle('p95', percentile(rest.work, 0.95)),
      cpu: { unit: 'ms/frame', ours: [flood.frames.cpuMsPerFrame], peer: [rest.cpuMsPerFrame] },
      note: `at most ${LIMITS.frameMs}; main thread busy ${plainNumber(flood.busyShare * 100)} %`,
    },
    {
      figure: `${what}: heap after ${count.toLocaleString('en')} lines, ${KEPT.toLocaleString('en')} kept`,
      unit: 'MiB',
      ours: [flood.heapMiB],
      peer: idle('heap', rest.heapMiB),
      note: `at most ${LIMITS.heapMiB}; highest with garbage ${plainNumber(flood.peakMiB)}`,
    },
    { figure: `${what}: last line written to painted`, unit: 'ms', ours: [flood.behindMs] },
    {
      figure: `${what}: CPU of the agent for a million lines`,
      unit: 's',
      ours: [(flood.cpuSeconds * MILLION) / count],
      peer: { name: 'one follower with the same request', runs: [framed] },
      note: `one plain follower ${plainNumber(plain)}`,
    },
    {
      figure: `scrolling through ${KEPT.toLocaleString('en')} lines: longest frame`,
      unit: 'ms',
      ours: [Math.max(...scrolled.intervals)],
      peer: idle('longest', Math.max(...rest.intervals)),
      cpu: { unit: 'ms/frame', ours: [scrolled.cpuMsPerFrame], peer: [rest.cpuMsPerFrame] },
      note: `at most ${LIMITS.longestMs}; work p95 ${plainNumber(percentile(scrolled.work, 0.95))}`,
    },
  ]
}
