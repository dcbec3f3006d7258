/** The log view and the wall by keys alone. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { ALLOC } from '../helpers/allocation.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { keyboardWorld, LOG_LINES } from '../helpers/browser/keyboard-world.ts'
import { expectFocus } from '../helpers/browser/page.ts'
import { eventually } from '../helpers/eventually.ts'

const skip = whyNoChromium() ?? false

test('after a search, Enter and Escape lead to the lines, where n and N repeat it', { skip }, async (t) => {
  const { log, open } = await keyboardWorld(t)
  writeFileSync(log, `${LOG_LINES.join('\n')}\n`)
  const page = await open(`/logs/${ALLOC}/web`)
  await page.getByText('line 199', { exact: true }).waitFor()
  const found = () => new URL(page.url()).searchParams.get('find')
  const expectSelected = (text: string) => page.locator('.log-selected', { hasText: text }).waitFor()
  await page.keyboard.press('/')
  await expectFocus(page, 'INPUT Find in the lines')
  await page.keyboard.type('error in')
  await page.getByText('10 matches').waitFor()
  await page.keyboard.press('Enter')
  await expectSelected('ERROR in 190')
  await expectFocus(page, /^DIV Lines/)
  await page.keyboard.press('N')
  await expectSelected('ERROR in 170')
  await page.keyboard.press('n')
  await expectSelected('ERROR in 190')
  assert.equal(found(), 'error in')

  // Escape in the field keeps the text for n and N.
  await page.keyboard.press('/')
  await page.keyboard.press('Escape')
  await expectFocus(page, /^DIV Lines/)
  assert.equal(found(), 'error in')
  await page.keyboard.press('N')
  await expectSelected('ERROR in 170')
  // In the lines it selects none, and then ends the search.
  await page.keyboard.press('Escape')
  await page.locator('.log-selected').waitFor({ state: 'detached' })
  assert.equal(found(), 'error in')
  await page.keyboard.press('Escape')
  await eventually(() => found() === null, 'the search has ended')
  await page.keyboard.press('/')
  await page.keyboard.press('Escape')
  await expectFocus(page, /^DIV Lines/)
})

test('a full wall refuses another tail, and says why', { skip }, async (t) => {
  const { open } = await keyboardWorld(t)
  const tails = Array.from({ length: 11 }, (_, at) => `tail=${ALLOC.replace(/.$/, String.fromCharCode(97 + at))}/web`)
  const page = await open(`/logs/wall?${tails.slice(0, 9).join('&')}`)
  await page.getByRole('log').nth(8).waitFor()
  await page.keyboard.press('a')
  await page.getByText('The wall shows up to nine logs. Remove one first.').waitFor()
  assert.equal(await page.getByRole('dialog').count(), 0)
  assert.equal(new URL(page.url()).searchParams.getAll('tail').length, 9)
  await page.goto(`${page.url().split('?')[0]}?${tails.join('&')}`)
  await page.getByRole('log').nth(8).waitFor()
  await eventually(() => new URL(page.url()).searchParams.getAll('tail').length === 9, 'the address has nine tails')
})
