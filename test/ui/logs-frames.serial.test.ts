/**
 * How smooth the tail of a busy log is: 20,000 lines a second, and scrolling in 100,000 lines. The measurements are printed; the limits allow for
 * a busy machine without a graphics processor.
 */
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { launchChromium, whyNoChromium } from '../helpers/browser/chromium.ts'
import { RestartingAgent } from '../helpers/restarting-agent.ts'
import { ALLOC_ID } from '../helpers/tail-host.ts'

const LINES_PER_SECOND = 20_000
const SECONDS = 8
const EVERY_MS = 20
const FRAME_MS_MAX = 50
const HEAP_BYTES_MAX = 150 * 2 ** 20

interface Frames {
  readonly count: number
  readonly p50: number
  readonly p95: number
  readonly max: number
}

/** Intervals between frames while `action` runs in each. A text, because it runs in the browser. */
function framesScript(ms: number, action: string): string {
  return `new Promise((resolve) => {
    const list = document.querySelector('.log-list')
    const intervals = []
    const endMs = performance.now() + ${ms}
    let lastMs = performance.now()
    const onFrame = (nowMs) => {
      intervals.push(nowMs - lastMs)
      lastMs = nowMs
      ${action}
      if (nowMs < endMs) return void requestAnimationFrame(onFrame)
      const sorted = intervals.slice(1).sort((one, other) => one - other)
      const at = (part) => Math.round(sorted[Math.floor((sorted.length - 1) * part)] * 10) / 10
      resolve({ count: sorted.length, p50: at(0.5), p95: at(0.95), max: at(1) })
    }
    requestAnimationFrame(onFrame)
  })`
}

function lineOf(number: number): string {
  const at = new Date().toISOString()
  return `${at} INFO worker-${number % 7} request ${number} GET /api/items/${(number * 7919) % 100_000} status=200 took=${number % 97}ms\n`
}

const skip = whyNoChromium()

test('a busy log is drawn without jank, within the limit of memory', { skip, timeout: 120_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), '')
  const browser = await launchChromium()
  t.after(() => browser.close())
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
  await page.goto(`${agent.url}/ui/logs/${ALLOC_ID}/web`)
  await page.waitForSelector('text=Live')
  const devtools = await page.context().newCDPSession(page)
  const heapBytes = async () => (await devtools.send('Runtime.getHeapUsage')).usedSize
  let [written, heapMax] = [0, 0]
  const beginMs = performance.now()
  const writer = setInterval(() => {
    const due = Math.floor(((performance.now() - beginMs) / 1000) * LINES_PER_SECOND)
    let text = ''
    while (written < due) text += lineOf(written++)
    appendFileSync(agent.log(0), text)
  }, EVERY_MS)
  const sampler = setInterval(() => void heapBytes().then((bytes) => (heapMax = Math.max(heapMax, bytes))), 500)
  t.after(() => [writer, sampler].forEach(clearInterval))
  const live = await page.evaluate<Frames>(framesScript(SECONDS * 1000, ''))
  clearInterval(writer)
  clearInterval(sampler)
  await page.waitForSelector(`.log-text >> text=request ${written - 1} GET`)
  await page.waitForSelector('text="last 100,000 lines"')
  await page.keyboard.press('p')
  const scrolling = await page.evaluate<Frames>(
    framesScript(3000, 'list.scrollTop = (list.scrollTop + 7777) % list.scrollHeight'),
  )
  t.diagnostic(`${Math.round(written / SECONDS)} lines/s, frames in ms: ${JSON.stringify(live)}`)
  t.diagnostic(`heap: at most ${Math.round(heapMax / 2 ** 20)} MiB`)
  t.diagnostic(`scrolling in 100,000 lines, frames in ms: ${JSON.stringify(scrolling)}`)
  assert.ok(live.p95 <= FRAME_MS_MAX, `95 % of frames: ${live.p95} ms`)
  assert.ok(scrolling.p95 <= FRAME_MS_MAX, `95 % of frames while scrolling: ${scrolling.p95} ms`)
  assert.ok(heapMax > 0)
  assert.ok(heapMax <= HEAP_BYTES_MAX, `heap: ${heapMax} bytes`)
})
