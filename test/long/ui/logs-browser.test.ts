/** The tail of a log in Chromium, against a real agent whose task writes. */
import assert from 'node:assert/strict'
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { launchChromium, whyNoChromium } from '../../helpers/browser/chromium.ts'
import { eventually } from '../../helpers/eventually.ts'
import { RestartingAgent } from '../../helpers/restarting-agent.ts'
import { ALLOC_ID } from '../../helpers/tail-host.ts'

const skip = whyNoChromium()
const LIST = '.log-list'
let browser: Browser | undefined

before(async () => {
  if (skip === undefined) browser = await launchChromium()
})
after(() => browser?.close())

function numbered(from: number, count: number): string {
  return Array.from({ length: count }, (_, at) => `line ${from + at}\n`).join('')
}

async function openTail(agent: RestartingAgent, query = ''): Promise<Page> {
  if (!browser) throw new Error('no browser')
  const page = await browser.newPage({ viewport: { width: 1000, height: 1200 } })
  page.on('pageerror', (error) => {
    throw error
  })
  await page.goto(`${agent.url}/ui/logs/${ALLOC_ID}/web${query}`)
  await page.waitForSelector(LIST)
  return page
}

function lastLine(page: Page): Promise<string> {
  return page.locator('.log-text').last().innerText()
}

/** Scrolls through all lines of the page and returns them. A text, because it runs in the browser. */
const ALL_LINES = `(async () => {
  const list = document.querySelector('${LIST}')
  const found = new Map()
  for (let top = 0; top < list.scrollHeight + list.clientHeight; top += list.clientHeight) {
    list.scrollTop = top
    for (let frame = 0; frame < 2; frame++) await new Promise((resolve) => requestAnimationFrame(resolve))
    for (const row of list.querySelectorAll('[data-id]')) {
      found.set(Number(row.getAttribute('data-id')), row.querySelector('.log-text').textContent)
    }
  }
  return [...found].sort(([one], [other]) => one - other).map(([, text]) => text)
})()`

/** What a hostile line could have done. */
const INJECTED = `({
  isHacked: 'hacked' in window,
  elements: document.querySelectorAll('${LIST} :is(img, script, svg, iframe, a, b)').length,
})`

test('all lines are shown once and in order, over restarts of the agent', { skip, timeout: 120_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), '')
  let [written, file] = [0, 0]
  const writer = setInterval(() => {
    appendFileSync(agent.log(file), numbered(written, 5))
    written += 5
    if (written % 1000 === 0) writeFileSync(agent.log(++file), '')
  }, 10)
  t.after(() => clearInterval(writer))
  const page = await openTail(agent, '?from=start')
  for (let restart = 0; restart < 2; restart++) {
    await new Promise((resolve) => setTimeout(resolve, 700))
    await agent.kill()
    await page.waitForSelector('text=Disconnected, retrying')
    await agent.start()
    await page.waitForSelector('text=/Paused|Live/')
  }
  await new Promise((resolve) => setTimeout(resolve, 300))
  clearInterval(writer)
  await page.keyboard.press('f')
  await eventually(async () => (await lastLine(page)) === `line ${written - 1}`, 'the last line is shown')
  const lines = await page.evaluate<string[]>(ALL_LINES)
  const remarks = lines.filter((text) => !text.startsWith('line '))
  assert.deepEqual(
    lines.filter((text) => text.startsWith('line ')),
    numbered(0, written).split('\n').slice(0, -1),
  )
  assert.equal(remarks.length, 2)
  for (const remark of remarks) assert.match(remark, /^Disconnected at .* resumed .* at the same position\.$/)
  await page.close()
})

test('a paused tail stays where it is, and counts new lines', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), numbered(0, 500))
  const page = await openTail(agent)
  await eventually(async () => (await lastLine(page)) === 'line 499', 'the end is shown')
  assert.ok(await page.isVisible('text=Live'))
  await page.keyboard.press('p')
  await page.waitForSelector('text=Paused')
  const top = await page.locator(LIST).evaluate(({ scrollTop }) => scrollTop)
  appendFileSync(agent.log(0), numbered(500, 123))
  await page.waitForSelector('text=Follow · 123 new')
  assert.equal(await page.locator(LIST).evaluate(({ scrollTop }) => scrollTop), top)
  await page.keyboard.press('f')
  await eventually(async () => (await lastLine(page)) === 'line 622', 'the new end is shown')
  // Scrolling up pauses, End follows again.
  await page.locator(LIST).hover()
  await page.mouse.wheel(0, -400)
  await page.waitForSelector('text=Paused')
  appendFileSync(agent.log(0), numbered(623, 7))
  await page.waitForSelector('text=Follow · 7 new')
  await page.keyboard.press('End')
  await eventually(async () => (await lastLine(page)) === 'line 629', 'the end is shown again')
  await page.close()
})

test('matches are counted, marked and visited', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  const text = Array.from({ length: 3000 }, (_, at) => (at % 300 === 150 ? `ERROR in ${at}` : `line ${at}`)).join('\n')
  writeFileSync(agent.log(0), `${text}\n`)
  const page = await openTail(agent, '?from=start')
  // What was written before is not new.
  await page.waitForTimeout(1500)
  assert.equal(await page.locator('text=/Follow/').innerText(), 'Follow')
  await page.keyboard.press('/')
  await page.keyboard.type('error')
  await page.waitForSelector('text=10 matches')
  await page.keyboard.press('Enter')
  await page.waitForSelector('text=/\\d+ of 10/')
  const waitForSelected = (line: string) => page.waitForSelector(`.log-selected >> text=${line}`)
  await page.keyboard.press('Escape')
  await page.goto(`${page.url().split('?')[0]}?from=start&find=error`)
  await page.waitForSelector('text=10 matches')
  await page.keyboard.press('n')
  await waitForSelected('ERROR in 150')
  await page.waitForSelector('text=1 of 10')
  await page.keyboard.press('n')
  await waitForSelected('ERROR in 450')
  await page.waitForSelector('.log-selected mark:text-is("ERROR")')
  await page.keyboard.press('N')
  await page.keyboard.press('N')
  await waitForSelected('ERROR in 2850')
  await page.close()
})

test('a filter is applied by the host, and a match is shown in the log', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  const text = Array.from({ length: 3000 }, (_, at) => (at % 300 === 150 ? `ERROR in ${at}` : `line ${at}`)).join('\n')
  writeFileSync(agent.log(0), `${text}\n`)
  const page = await openTail(agent)
  await page.getByLabel('Filter', { exact: true }).fill('ERROR in (4|7)50')
  await page.keyboard.press('Enter')
  await page.waitForSelector('text="2 lines"')
  assert.deepEqual(await page.locator('.log-text').allInnerTexts(), ['ERROR in 450', 'ERROR in 750'])
  assert.match(page.url(), /grep=ERROR\+in\+%284%7C7%2950/)
  await page.locator('.log-gutter').nth(1).click()
  await page.getByRole('button', { name: 'Show in the log' }).click()
  await page.waitForSelector('.log-selected >> text="ERROR in 750"')
  await page.waitForSelector('text="line 749"')
  assert.doesNotMatch(page.url(), /grep=/)
  await page.close()
})

test('a search in the last lines is continued in the whole log', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  const text = Array.from({ length: 3000 }, (_, at) => (at === 150 ? 'ERROR (1) of old' : `line ${at}`)).join('\n')
  writeFileSync(agent.log(0), `${text}\n`)
  const page = await openTail(agent)
  await page.waitForSelector('text="1,000 lines"')
  await page.getByRole('button', { name: 'Errors' }).click()
  await page.waitForSelector('text="0 matches"')
  await page.waitForSelector('text=No error in the 1,000 lines of this page.')
  await page.getByRole('button', { name: 'Filter the whole log' }).click()
  await page.waitForSelector('text="1 line"')
  assert.deepEqual(await page.locator('.log-text').allInnerTexts(), ['ERROR (1) of old'])
  await page.waitForSelector('text="1 match"')
  await page.goto(`${page.url().split('?')[0]}?find=error+(1)`)
  await page.getByRole('button', { name: 'Filter the whole log' }).click()
  await page.waitForSelector('text="1 line"')
  await page.close()
})

test('a start at a time is an hour ago at first', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), 'a line\n')
  const page = await openTail(agent)
  await page.getByLabel('From').selectOption('A time…')
  await page.getByRole('button', { name: 'Go', exact: true }).click()
  const since = Date.parse(new URL(page.url()).searchParams.get('since') ?? '')
  assert.ok(Math.abs(Date.now() - 3_600_000 - since) < 60_000)
  await page.close()
})

test('a link to a line shows it with the lines around it', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), numbered(0, 20_000))
  const page = await openTail(agent, '?from=start&find=line 12345')
  await page.waitForSelector('text=1 match')
  await page.keyboard.press('n')
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Show in the log' }).click()
  await page.waitForURL(/cursor=/)
  await page.waitForSelector('.log-selected >> text="line 12345"')
  await page.reload()
  await page.waitForSelector('.log-selected >> text="line 12345"')
  await page.waitForSelector('text="line 12340"')
  await page.waitForSelector('text="line 12350"')
  await page.close()
})

test('a log cannot put anything but text into the page', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  const hostile = [
    '<img src=x onerror="window.hacked=1">',
    '<script>window.hacked=1</script>',
    '"><svg onload=window.hacked=1>',
    '\u001b]8;;javascript:window.hacked=1\u001b\\link\u001b]8;;\u001b\\',
    '{"level":"<img src=x onerror=window.hacked=1>","a":"</span><script>window.hacked=1</script>"}',
    '\u001b[31m<iframe srcdoc="<script>parent.hacked=1</script>">\u001b[0m',
    '    at <b>x</b>',
    '\u202etxt.exe',
  ]
  writeFileSync(agent.log(0), `${hostile.join('\n')}\n`)
  const page = await openTail(agent, '?wrap=1&time=1&find=<')
  await page.waitForSelector('text=svg onload')
  for (const gutter of await page.locator('.log-gutter').all()) await gutter.click()
  await page.waitForSelector('.log-details pre')
  const state = await page.evaluate(INJECTED)
  assert.deepEqual(state, { isHacked: false, elements: 0 })
  const texts = await page.locator('.log-row > .log-text').allInnerTexts()
  assert.ok(texts.includes('<img src=x onerror="window.hacked=1">'))
  assert.ok(texts.includes('link'))
  assert.ok(texts.includes('\ufffdtxt.exe'))
  await page.close()
})

/** Left edges of the tokens of the first line, in the order of its text. */
const TOKEN_EDGES = `[...document.querySelectorAll('.log-row .json-text, .log-row .json-value')]
  .map((token) => token.getBoundingClientRect().left)`

test('a text from right to left does not reorder the JSON around it', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), '{"\u05d0":["\u05d0\u05d1\u05d2","\u05d3\u05d4",12,"\u05d5"]}\n')
  const page = await openTail(agent)
  await page.waitForSelector('.json-text')
  const edges = await page.evaluate<readonly number[]>(TOKEN_EDGES)
  assert.equal(edges.length, 4)
  assert.deepEqual(
    edges,
    edges.toSorted((one, other) => one - other),
  )
  await page.close()
})

test('keys of the view leave dialogs and buttons their own keys', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), numbered(0, 500))
  const page = await openTail(agent)
  await page.waitForSelector('text="line 499"')
  await page.keyboard.press('?')
  await page.waitForSelector('dialog[open]')
  await page.keyboard.press('Escape')
  await page.waitForSelector('dialog[open]', { state: 'detached' })
  await page.getByRole('button', { name: 'Pause' }).focus()
  await page.keyboard.press(' ')
  await page.waitForSelector('text=Paused')
  await page.locator(LIST).focus()
  await page.keyboard.press('g')
  await page.keyboard.press('g')
  await page.waitForSelector('text="line 0"')
  await page.keyboard.press(' ')
  await page.waitForSelector('text="line 0"', { state: 'detached' })
  await page.keyboard.press('G')
  await page.waitForSelector('text=Live')
  await page.close()
})

test('a line without an end is shown, and completed later', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), 'first\nPassword: ')
  const page = await openTail(agent)
  await eventually(async () => (await lastLine(page)) === 'Password: ', 'the beginning is shown')
  appendFileSync(agent.log(0), '****')
  await eventually(async () => (await lastLine(page)) === 'Password: ****', 'more is shown')
  appendFileSync(agent.log(0), '*\nwelcome\n')
  await eventually(async () => (await lastLine(page)) === 'welcome', 'the next line is shown')
  assert.deepEqual(await page.locator('.log-text').allInnerTexts(), ['first', 'Password: *****', 'welcome'])
  await page.close()
})

test('a log is saved as a file', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), numbered(0, 5000))
  writeFileSync(agent.log(1), numbered(5000, 5000))
  const page = await openTail(agent, '?type=stdout')
  // A headless browser cannot ask for a file.
  await page.evaluate('delete window.showSaveFilePicker')
  await page.evaluate('window.showSaveFilePicker = undefined')
  const saving = page.waitForEvent('download')
  await page.getByRole('button', { name: 'Download' }).click()
  const saved = await saving
  assert.match(saved.suggestedFilename(), /^6f1c0b9e-web\.log$/)
  assert.equal(readFileSync(await saved.path(), 'utf8'), numbered(0, 10_000))
  await page.close()
})

test('an unknown allocation is reported, and the view tries again', { skip, timeout: 60_000 }, async (t) => {
  const agent = await RestartingAgent.start(t)
  const page = await openTail(agent, '-other')
  await page.waitForSelector('text=/unknown task name.*web-other|tries again/')
  await page.close()
})
