/**
 * Runs in a page before its scripts and measures what the page paints: `bench/support/browser.ts` injects it through the debugger, which
 * the content security policy of the page does not concern.
 *
 * A frame counts as painted when the first task after its rendering runs. The browser's other processes take a few milliseconds
 * more until a screen would show it; the peers are measured in the same way.
 */
export interface BenchFrames {
  /** Between the starts of frames. */
  readonly intervals: readonly number[]
  /** From the start of a frame to its painted content. */
  readonly work: readonly number[]
}

export interface BenchProbe {
  /** Resolves with the time at which an element with this text was painted. */
  painted(selector: string, text?: string): Promise<number>
  /** Resolves with the time of the first frame in which the condition holds; with -1 if there is none. */
  until(isDone: () => boolean, timeoutMs: number): Promise<number>
  startFrames(): void
  endFrames(): BenchFrames
  /** Notes when each line `L0000000001` is painted as the last line of the log. */
  watchLines(): void
  /** Times by number of the line; 0 for lines that were not painted. */
  paintedLines(count: number): readonly number[]
  /** Moves an element that scrolls through its whole height, and then to places far apart. */
  scroll(selector: string, frames: number, jumps: number): Promise<BenchFrames>
}

declare global {
  interface Window {
    bench: BenchProbe
  }
}

const LINE = /L(\d{10}) /
const waiting = new Set<() => boolean>()
const linePaintedMs: number[] = []
let frame = 0
let isInFrame = false
let startedMs = 0
let previousMs = 0
let frames: { intervals: number[]; work: number[] } | undefined
let lastLine = -1
/** Lines up to `line` are in the document and painted with frame `frame`. */
let pending: { line: number; frame: number }[] = []
let areLinesWatched = false

const channel = new MessageChannel()
const onPainted = () => {
  isInFrame = false
  const nowMs = performance.now()
  frames?.work.push(nowMs - startedMs)
  for (const each of pending) {
    if (each.frame > frame) continue
    for (let line = lastLine + 1; line <= each.line; line++) linePaintedMs[line] = nowMs
    lastLine = Math.max(lastLine, each.line)
  }
  pending = pending.filter((each) => each.frame > frame)
  for (const isDone of waiting) if (isDone()) waiting.delete(isDone)
}
channel.port1.addEventListener('message', onPainted)
channel.port1.start()

const onFrame = (timestampMs: number) => {
  // First: the callbacks of the page that are requested later run after this one.
  requestAnimationFrame(onFrame)
  frame++
  isInFrame = true
  startedMs = performance.now()
  if (previousMs > 0) frames?.intervals.push(timestampMs - previousMs)
  previousMs = timestampMs
  channel.port2.postMessage(0)
}
requestAnimationFrame(onFrame)

new MutationObserver(() => {
  if (!areLinesWatched) return
  const text = document.querySelector('[role=log] .log-rows')?.lastElementChild?.textContent ?? ''
  const line = Number(LINE.exec(text)?.[1] ?? '-1')
  const known = pending.at(-1)?.line ?? lastLine
  if (line > known) pending.push({ line, frame: isInFrame ? frame : frame + 1 })
}).observe(document, { subtree: true, childList: true, characterData: true })

const endFrames = (): BenchFrames => {
  const result = frames ?? { intervals: [], work: [] }
  frames = undefined
  return result
}
const nextFrame = () => new Promise<void>((resolve) => requestAnimationFrame(() => resolve()))

window.bench = {
  painted: (selector, text) =>
    new Promise((resolve) => {
      waiting.add(() => {
        const found = [...document.querySelectorAll(selector)]
        const isThere = found.some((element) => text === undefined || element.textContent?.includes(text))
        if (isThere) resolve(performance.now())
        return isThere
      })
    }),
  until: (isDone, timeoutMs) =>
    new Promise((resolve) => {
      const deadlineMs = performance.now() + timeoutMs
      waiting.add(() => {
        const isLate = performance.now() > deadlineMs
        const isThere = isDone()
        if (isThere || isLate) resolve(isThere ? performance.now() : -1)
        return isThere || isLate
      })
    }),
  startFrames() {
    frames = { intervals: [], work: [] }
  },
  endFrames,
  watchLines() {
    areLinesWatched = true
  },
  paintedLines: (count) => Array.from({ length: count }, (_, line) => linePaintedMs[line] ?? 0),
  async scroll(selector, steps, jumps) {
    const element = document.querySelector(selector)
    if (!element) throw new Error(`no element ${selector}`)
    element.scrollTop = 0
    for (let at = 0; at < 10; at++) await nextFrame()
    frames = { intervals: [], work: [] }
    const heightPx = element.scrollHeight - element.clientHeight
    for (let step = 1; step <= steps; step++) {
      element.scrollTop = (heightPx * step) / steps
      await nextFrame()
    }
    let random = 1
    for (let jump = 0; jump < jumps; jump++) {
      random = (random * 48_271) % 2_147_483_647
      element.scrollTop = heightPx * (random / 2_147_483_647)
      await nextFrame()
    }
    await nextFrame()
    return endFrames()
  },
}
