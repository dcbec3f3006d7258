/** Search in a tail, in a browser: errors, and from the lines of the page to the whole log. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Locator, Page } from 'playwright-core'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { expectNoAxeViolations, openUi } from '../helpers/browser/page.ts'
import { eventually } from '../helpers/eventually.ts'
import { OPS, startHost } from './hosts-fixture.ts'

const LINES = 3000
const TASKS = {
  // Two errors are in the last 1,000 lines, which the page shows at first.
  web: new Map([
    [150, 'ERROR (1) of old'],
    [2100, 'ERROR in the middle'],
    [2600, 'ERROR at last'],
  ]),
  quiet: new Map([[150, 'ERROR (1) of old']]),
  clean: new Map<number, string>(),
}

function textOf(special: ReadonlyMap<number, string>, count: number): string {
  return Array.from({ length: count }, (_, at) => `${special.get(at) ?? `line ${at}`}\n`).join('')
}

function prepare(allocDir: string): void {
  const allocation = makeAllocation(allocDir, ALLOC, {
    Tasks: Object.fromEntries(Object.keys(TASKS).map((task) => [task, { State: 'running' }])),
  })
  for (const [task, special] of Object.entries(TASKS)) {
    const text = textOf(special, task === 'clean' ? 20 : LINES)
    writeFileSync(join(allocation, `alloc/logs/${task}.stdout.0`), text)
  }
}

/** A key may not be bound yet. */
async function press(page: Page, key: string, effect: () => Promise<boolean>): Promise<void> {
  await eventually(async () => {
    await page.keyboard.press(key)
    return eventually(effect, key, 1000).catch(() => false)
  }, `the effect of ${key}`)
}

async function checkAccess(page: Page, what: string): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme })
    await expectNoAxeViolations(page, `${what}, ${colorScheme}`)
  }
}

function filtered(page: Page): Promise<string[]> {
  return page.locator('.log-text').allInnerTexts()
}

function note(page: Page): Locator {
  return page.locator('.log-note')
}

test('a search in a tail goes to its last match, and on to the whole log', {
  skip: whyNoChromium(),
}, async (parent) => {
  const { url } = await startHost(parent, prepare)

  await parent.test('"Errors" and its key select the last error, which is visible', async (t) => {
    const { page } = await openUi(t, { url, token: OPS, path: `/logs/${ALLOC}/web` })
    await page.getByText('1,000 lines', { exact: true }).waitFor()
    const selected = page.locator('.log-selected .log-text')
    await page.getByRole('button', { name: 'Errors' }).click()
    await selected.getByText('ERROR at last').waitFor()
    await page.getByText('2 of 2', { exact: true }).waitFor()
    await page.getByText('Paused').waitFor()
    const box = await selected.boundingBox()
    const list = await page.locator('.log-list').boundingBox()
    assert.ok(box && list && box.y >= list.y && box.y + box.height <= list.y + list.height, 'the error is visible')
    await page.getByRole('button', { name: 'Previous match' }).click()
    await selected.getByText('ERROR in the middle').waitFor()
    await page.getByRole('log').focus()
    await press(page, 'e', () => selected.getByText('ERROR at last').isVisible())
    await press(page, 'G', async () => (await selected.count()) === 0)
    await press(page, 'e', () => selected.getByText('ERROR at last').isVisible())
  })

  await parent.test('without an error the tail stays, says so, and offers the whole log', async (t) => {
    const { page } = await openUi(t, { url, token: OPS, path: `/logs/${ALLOC}/quiet` })
    await page.getByText('1,000 lines', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Errors' }).click()
    await note(page).getByText('No error in the 1,000 lines of this page.').waitFor()
    await page.getByText('Live').waitFor()
    await checkAccess(page, 'no error')
    await note(page).getByRole('button', { name: 'Filter the whole log' }).click()
    await page.getByText('1 line', { exact: true }).waitFor()
    assert.deepEqual(await filtered(page), ['ERROR (1) of old'])
    await page.goto(`${url}/ui/logs/${ALLOC}/clean`)
    await page.getByText('20 lines', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Errors' }).click()
    await note(page).getByText('No error in the log yet.').waitFor()
    assert.equal(await note(page).getByRole('button').count(), 0, 'all of it is shown already')
  })

  await parent.test('the whole log is filtered by a key, from the field of the search, and by a command', async (t) => {
    const { page } = await openUi(t, { url, token: OPS, path: `/logs/${ALLOC}/web?find=error+(1)&since=1h` })
    const isFiltered = async () => (await filtered(page)).join() === 'ERROR (1) of old'
    await page.getByText('0 matches').or(page.getByText('1 match')).waitFor()
    await press(page, '&', isFiltered)
    assert.doesNotMatch(page.url(), /since=/, 'the whole log')

    await page.goto(`${url}/ui/logs/${ALLOC}/web`)
    await page.getByText('1,000 lines', { exact: true }).waitFor()
    await page.getByRole('textbox', { name: 'Find in the lines' }).fill('error (1)')
    await page.keyboard.press('Control+Enter')
    await eventually(isFiltered, 'the search is continued in the whole log')

    await page.goto(`${url}/ui/logs/${ALLOC}/web?find=error+(1)`)
    await page.getByText('1,000 lines', { exact: true }).waitFor()
    await page.keyboard.press('Control+k')
    await page.keyboard.type('filter the whole')
    await page.keyboard.press('Enter')
    await eventually(isFiltered, 'the command filters')
  })

  await parent.test('without a search the key and the command lead to the filter', async (t) => {
    const { page } = await openUi(t, {
      url,
      token: OPS,
      path: `/logs/${ALLOC}/web`,
      // The options are closed there.
      viewport: { width: 700, height: 800 },
    })
    await page.getByText('line 2999', { exact: true }).waitFor()
    const field = page.getByRole('textbox', { name: 'Filter', exact: true })
    const hasFocus = () => page.evaluate<boolean>("document.activeElement.matches('.log-grep')")
    assert.equal(await field.count(), 0)
    await page.keyboard.press('Control+k')
    await page.keyboard.type('filter the whole')
    await page.keyboard.press('Enter')
    await eventually(async () => (await field.count()) === 1 && (await hasFocus()), 'the filter has the focus')
    await page.getByRole('log').focus()
    await press(page, '&', hasFocus)
    await page.keyboard.type('ERROR at')
    await page.keyboard.press('Enter')
    await eventually(async () => (await filtered(page)).join() === 'ERROR at last', 'the filter applies')
    await page.getByRole('log').focus()
    await page.keyboard.press('?')
    const keys = page.getByRole('dialog', { name: 'Keys' })
    await keys.getByText('Filter the whole log', { exact: true }).waitFor()
    await keys.getByText('&', { exact: true }).waitFor()
    await keys.getByText('Ctrl/⌘ Enter', { exact: true }).waitFor()
  })
})
