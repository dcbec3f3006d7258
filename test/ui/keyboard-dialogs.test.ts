/** Dialogs and changing views by keys alone: where the focus is, and which keys have an effect. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { keyboardWorld, pressForDialog } from '../helpers/browser/keyboard-world.ts'
import { eventually } from '../helpers/eventually.ts'

const skip = whyNoChromium() ?? false

test('behind a modal dialog no key of the view has an effect', { skip }, async (t) => {
  const { open } = await keyboardWorld(t)
  const page = await open('/secrets/secret/app/db')
  await page.getByRole('button', { name: 'Delete', exact: true }).waitFor()
  const before = page.url()
  const tryKeys = async (keys: readonly string[]) => {
    for (const key of keys) await page.keyboard.press(key)
    await page.waitForTimeout(100)
    assert.equal(page.url(), before, keys.join(' '))
  }
  const keys = await pressForDialog(page, '?', 'Keys')
  await tryKeys(['g', 'l'])
  await tryKeys(['2'])
  await tryKeys(['e'])
  await page.keyboard.press('?')
  await keys.waitFor({ state: 'hidden' })
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  const question = page.getByRole('dialog', { name: /Delete version/ })
  await question.waitFor()
  await tryKeys(['2', 'e', 'g', 'h'])
  await page.keyboard.press('Control+k')
  assert.equal(await page.getByRole('dialog').count(), 1)
  await page.keyboard.press('Escape')
  await question.waitFor({ state: 'hidden' })
  await eventually(async () => {
    await page.keyboard.press('2')
    return page.url().endsWith('?tab=versions')
  }, 'the key has an effect again')
})
