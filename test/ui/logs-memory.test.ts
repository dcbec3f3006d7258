/** The memory of the tail of a busy log: a page keeps the last 100,000 lines and draws the visible ones. `bench/ui` measures its frames. */
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { launchChromium, whyNoChromium } from '../helpers/browser/chromium.ts'
import { RestartingAgent } from '../helpers/restarting-agent.ts'
import { ALLOC_ID } from '../helpers/tail-host.ts'

const LINES = 160_000
const BATCH_LINES = 4000
const HEAP_BYTES_MAX = 150 * 2 ** 20
/** More than a screen has, and far fewer than are kept. */
const ROWS_MAX = 200

function lineOf(number: number): string {
  return `2026-11-28T10:00:00Z INFO worker-${number % 7} request ${number} GET /api/items/${(number * 7919) % 100_000} status=200\n`
}

const skip = whyNoChromium()

test('a busy log costs a bounded amount of memory, and its last line is shown', {
  skip,
  timeout: 120_000,
}, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), '')
  const browser = await launchChromium()
  t.after(() => browser.close())
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
  await page.goto(`${agent.url}/ui/logs/${ALLOC_ID}/web`)
  await page.waitForSelector('text=Live')
  const devtools = await page.context().newCDPSession(page)
  const heaps: number[] = []
  for (let first = 0; first < LINES; first += BATCH_LINES) {
    appendFileSync(agent.log(0), Array.from({ length: BATCH_LINES }, (_, at) => lineOf(first + at)).join(''))
    heaps.push((await devtools.send('Runtime.getHeapUsage')).usedSize)
  }
  await page.waitForSelector(`.log-text >> text=request ${LINES - 1} GET`)
  await page.waitForSelector('text="last 100,000 lines"')
  assert.ok(Math.max(...heaps) <= HEAP_BYTES_MAX, `heap: ${Math.max(...heaps)} bytes`)
  const rows = await page.locator('.log-text').count()
  assert.ok(rows > 0)
  assert.ok(rows <= ROWS_MAX, `${rows} rows in the document`)
})
