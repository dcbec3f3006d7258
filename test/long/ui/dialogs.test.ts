/** Dialogs and the command palette, by keys alone. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { openUi } from '../../helpers/browser/page.ts'
import { secretsAgent } from '../../helpers/browser/secrets-page.ts'
import { RestartingAgent } from '../../helpers/restarting-agent.ts'
import { ALLOC_ID } from '../../helpers/tail-host.ts'

const skip = whyNoChromium() ?? false

/** The label of the element with the focus. A text, because it runs in the browser. */
const FOCUSED = 'document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent'

async function pressUntilDialog(page: Page, key: string, title: string) {
  const dialog = page.getByRole('dialog', { name: title })
  // The key has no effect until the view has loaded what the token may do.
  for (let tries = 0; tries < 50 && (await dialog.count()) === 0; tries++) {
    await page.keyboard.press(key)
    await page.waitForTimeout(200)
  }
  await dialog.waitFor()
  return dialog
}

test('the first field of a dialog has the focus', { skip }, async (t) => {
  const { call, open, url } = await secretsAgent(t)
  await call('POST', 'sys/auth/userpass', { type: 'userpass' })
  await call('POST', 'sys/mounts/totp', { type: 'totp' })
  await call('POST', 'secret/data/app/db', { data: { a: '1' } })
  const { page } = await open(t, '/secrets/secret/')
  for (const [path, key, title, field] of [
    ['/secrets/secret/', 'n', 'Create a secret', 'Name below secret/'],
    ['/secrets/secret/', 'o', 'Open a path', 'Name below secret/'],
    ['/secrets', 'n', 'Enable a KV engine', 'Path'],
    ['/policies', 'n', 'Create a policy', 'Name'],
    ['/access', 'n', 'Create a token', 'Policies'],
    ['/access/auth/userpass', 'n', 'Create a user', 'Name'],
  ] as const) {
    await page.goto(`${url}/ui${path}`)
    const dialog = await pressUntilDialog(page, key, title)
    assert.equal(await page.evaluate(FOCUSED), field, title)
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'hidden' })
  }
  await page.goto(`${url}/ui/secrets/secret/`)
  await pressUntilDialog(page, 'o', 'Open a path')
  await page.keyboard.type('app/db')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'db' }).waitFor()
})

test('a search and Enter add a tail to the wall', { skip }, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), 'a line\n')
  const { page } = await openUi(t, { url: agent.url, path: '/logs/wall' })
  const dialog = await pressUntilDialog(page, 'a', 'Add a tail')
  await dialog.getByRole('listitem').first().waitFor()
  await page.keyboard.type('web')
  await page.keyboard.press('Enter')
  await page.getByRole('log').getByText('a line').waitFor()
  assert.equal(await dialog.count(), 0)
  assert.match(page.url(), new RegExp(`tail=(${ALLOC_ID}|job)`))
})

test('the palette lists the logout last, also after other views', { skip }, async (t) => {
  const { open } = await secretsAgent(t)
  const { page } = await open(t, '/logs')
  for (const keys of ['g h', 'g s', 'g l']) for (const key of keys.split(' ')) await page.keyboard.press(key)
  await page.getByRole('heading', { name: 'Logs' }).waitFor()
  await page.keyboard.press('Control+k')
  const titles = await page.getByRole('option').allInnerTexts()
  assert.match(titles.at(-1) ?? '', /^Log out/)
  assert.equal(titles.filter((title) => title.startsWith('Log out')).length, 1)
})
