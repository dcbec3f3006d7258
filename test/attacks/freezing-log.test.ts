/** A task whose log is made to freeze, inject or mislead the page that shows it, and a link with an expression that would do so. */
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { openUi } from '../helpers/browser/page.ts'
import { OPS, startHost } from '../ui/hosts-fixture.ts'

const skip = whyNoChromium() ?? false
const ESC = '\u001b'
const LINES: readonly (string | Buffer)[] = [
  'x'.repeat(10 * 1024 * 1024),
  `panic: x\n${`${'('.repeat(60_000)}\n`.repeat(5)}`,
  `${'a'.repeat(60_000)}!`,
  `{"${'\\"'.repeat(30_000)}}`,
  `{"a":${'['.repeat(30_000)}${']'.repeat(30_000)}}`,
  `{"__proto__":{"isHacked":true},"constructor":{"prototype":{"isHacked":true}}}`,
  `${ESC}]8;;javascript:alert(1)${ESC}\\link${ESC}]8;;${ESC}\\ <img src=x onerror="window.isHacked=1">`,
  `${ESC}[2J${ESC}[H${ESC}]0;title\u0007 \u202e\u0000\u0008 ${ESC}[<hidden text m`,
  Buffer.from([0xff, 0xfe, 0xc3, 0x28, 0xed, 0xa0, 0x80, 0x00, 0x41]),
  'the last line',
]

/** Fails if the page does not answer in time. */
async function expectResponsive(page: Page, what: string): Promise<void> {
  const late = new Promise<never>((_, reject) =>
    setTimeout(() => reject(new Error(`${what}: the page is frozen`)), 15_000).unref(),
  )
  await Promise.race([page.evaluate('1'), late])
}

test('a hostile log neither freezes the page nor adds elements to it', { skip }, async (t) => {
  const agent = await startHost(t, (allocDir) => {
    const directory = makeAllocation(allocDir, ALLOC, { Name: 'web', JobID: 'web' })
    mkdirSync(join(directory, 'alloc/logs'), { recursive: true })
    const log = Buffer.concat(LINES.map((line) => Buffer.concat([Buffer.from(line), Buffer.from('\n')])))
    writeFileSync(join(directory, 'alloc/logs/web.stdout.0'), log)
  })
  const queries = ['from=start', 'from=start&wrap=1', `from=start&regex=1&find=${encodeURIComponent('(a+)+$')}`]
  const { page } = await openUi(t, { url: agent.url, token: OPS })
  for (const query of queries) {
    await page.goto(`${agent.url}/ui/logs/${ALLOC}/web?${query}`)
    const list = page.locator('.log-list')
    await list.waitFor()
    await expectResponsive(page, query)
    // Every line is opened from the last one upwards.
    await page.keyboard.press('f')
    await page.getByText('the last line').first().waitFor()
    for (let at = 0; at < 14; at++) {
      await page.keyboard.press('k')
      await page.keyboard.press('Enter')
      await expectResponsive(page, `${query}, line ${at} from the end`)
    }
    const found = await page.evaluate(`({
      isHacked: 'isHacked' in {} || 'isHacked' in window,
      elements: document.querySelectorAll('.log-list :is(img, script, svg, iframe, a)').length,
      title: document.title,
    })`)
    assert.deepEqual(found, { isHacked: false, elements: 0, title: 'web · web · outpost' })
    if (query.includes('find')) {
      await page.keyboard.press('n')
      await expectResponsive(page, 'next match')
      await page
        .locator('.log-count')
        .getByText(/match|of/)
        .waitFor()
    }
  }
})
