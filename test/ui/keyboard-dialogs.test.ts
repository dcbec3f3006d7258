/** Dialogs and changing views by keys alone: where the focus is, and which keys have an effect. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { URI } from 'otpauth'
import type { Page } from 'playwright-core'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { keyboardWorld, PASSWORD, pressForDialog } from '../helpers/browser/keyboard-world.ts'
import { expectFocus, expectNoAxeViolations } from '../helpers/browser/page.ts'
import { eventually } from '../helpers/eventually.ts'

const skip = whyNoChromium() ?? false

/** Enters the username and the password of the login dialog, and presses Enter. */
async function enterPassword(page: Page, username: string) {
  await page.getByRole('button', { name: 'Log in' }).first().click()
  const dialog = page.getByRole('dialog', { name: 'Log in' })
  await dialog.getByRole('radio', { name: 'Username' }).check()
  await dialog.getByLabel('Username', { exact: true }).last().fill(username)
  await dialog.getByLabel('Password').fill(PASSWORD)
  await page.keyboard.press('Enter')
  return dialog
}

test('each step of a login with a second factor has the focus in its field', { skip }, async (t) => {
  const { codeUrl, openWithoutToken } = await keyboardWorld(t)
  const page = await openWithoutToken('/access/auth')
  const dialog = await enterPassword(page, 'alice')
  await dialog.getByText('requires a second factor').waitFor()
  await expectFocus(page, 'INPUT Code of phone')
  await page.keyboard.type('000000')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await dialog.getByRole('alert').filter({ hasText: 'The code is wrong' }).waitFor()
  await expectFocus(page, 'INPUT Code of phone')
  await dialog.getByRole('button', { name: 'Back' }).focus()
  await page.keyboard.press('Enter')
  await expectFocus(page, 'INPUT Password')
  await page.keyboard.type(PASSWORD)
  await page.keyboard.press('Enter')
  await expectFocus(page, 'INPUT Code of phone')
  const totp = URI.parse(codeUrl)
  assert.ok('period' in totp)
  await page.keyboard.type(totp.generate())
  await page.keyboard.press('Enter')
  await dialog.waitFor({ state: 'hidden' })
  await page.getByText('userpass-alice').waitFor()
})

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

test('what is shown once is not discarded by one Escape', { skip }, async (t) => {
  const { open } = await keyboardWorld(t)
  const page = await open('/access/tokens')
  const token = await pressForDialog(page, 'n', 'Create a token')
  await expectFocus(page, 'INPUT Policies')
  const service = token.getByRole('radio', { name: 'Service' })
  await service.focus()
  await page.keyboard.press('ArrowDown')
  assert.equal(await token.getByRole('radio', { name: /^Batch/ }).isChecked(), true, 'arrows move in a group')
  await page.keyboard.press('ArrowUp')
  assert.equal(await service.isChecked(), true)
  await page.keyboard.press('Enter')
  const created = page.getByRole('dialog', { name: 'Token created' })
  await created.waitFor()
  await expectFocus(page, 'H2 Token created')
  await page.keyboard.press('Escape')
  await created.getByRole('alert').filter({ hasText: 'Close once more' }).waitFor()
  await page.keyboard.press('Escape')
  await created.waitFor({ state: 'hidden' })
  assert.equal(await token.count(), 0)

  await page.goto(page.url().replace(/access.*/, 'totp'))
  await pressForDialog(page, 'n', 'Create a key')
  for (const name of ['Name', 'Issuer', 'Account']) await page.getByLabel(name, { exact: true }).fill('mail')
  await page.keyboard.press('Enter')
  const generated = page.getByRole('dialog', { name: 'Key generated' })
  await generated.waitFor()
  await expectFocus(page, 'H2 Key generated')
  await page.keyboard.press('Escape')
  await generated.getByRole('alert').filter({ hasText: 'Close once more' }).waitFor()
  await generated.getByRole('button', { name: 'I have scanned it' }).click()
  await generated.waitFor({ state: 'hidden' })
})

test('the focus stays in a view whose content replaces the element that had it', { skip }, async (t) => {
  const { call, open } = await keyboardWorld(t)
  const page = await open('/secrets/secret/')
  await pressForDialog(page, 'n', 'Create a secret')
  await page.keyboard.type('new')
  await page.keyboard.press('Enter')
  await expectFocus(page, 'H1 new')

  await page.goto(page.url().replace(/secrets.*/, 'policies'))
  await pressForDialog(page, 'n', 'Create a policy')
  await page.keyboard.type('readers')
  await page.keyboard.press('Enter')
  await expectFocus(page, 'H1 readers')

  await page.goto(page.url().replace(/policies.*/, 'secrets/secret/app/db?tab=versions'))
  await page.getByRole('button', { name: 'Destroy version 1' }).focus()
  await page.keyboard.press('Enter')
  await expectFocus(page, 'INPUT Type "db" to confirm')
  await page.keyboard.type('db')
  await page.keyboard.press('Enter')
  await page.getByText('destroyed', { exact: true }).waitFor()
  await expectFocus(page, 'H1 db')

  await call('POST', 'secret/data/app/db', { data: { password: 'two' } })
  await page.goto(page.url().replace(/tab.*/, 'tab=edit'))
  await page.getByRole('button', { name: 'Show and edit the value of password' }).click()
  await page.getByRole('textbox', { name: 'Value of password' }).fill('mine')
  await call('POST', 'secret/data/app/db', { data: { password: 'theirs' } })
  await page.getByRole('button', { name: 'Save', exact: true }).focus()
  await page.keyboard.press('Enter')
  await expectFocus(page, /^H2 Another client wrote version/)
  await page.getByRole('button', { name: 'All mine' }).click()
  await page.getByRole('button', { name: 'Save the choice' }).focus()
  await page.keyboard.press('Enter')
  await page.getByText(/Wrote version/).waitFor()
  await expectFocus(page, 'H1 db')
})

test('the enrolment of a second factor keeps the focus in each step', { skip }, async (t) => {
  const { call, open } = await keyboardWorld(t)
  await call('PUT', 'sys/mfa/method/totp/tablet', { issuer: 'Example' })
  const { client_token } = await call('PUT', 'auth/userpass/login/bob', { password: PASSWORD })
  const page = await open('/totp/mfa', { token: String(client_token) })
  const card = page.getByRole('region', { name: 'Method tablet' })
  await card.getByRole('button', { name: 'Enroll' }).focus()
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Generate the secret' }).focus()
  await page.keyboard.press('Enter')
  await page.getByText('Scan the QR code').waitFor()
  await expectFocus(page, 'H2 Enroll for tablet')
  await page.getByRole('button', { name: 'Done' }).focus()
  await page.keyboard.press('Enter')
  await card.getByText('active').waitFor()
  await expectFocus(page, 'H2 tablet')
})

test('n creates a role of AppRole, which can log in', { skip }, async (t) => {
  const { call, open } = await keyboardWorld(t)
  const page = await open('/access/auth/approle')
  const dialog = await pressForDialog(page, 'n', 'Create a role')
  await expectFocus(page, 'INPUT Name')
  await page.keyboard.type('we/b')
  await dialog.getByLabel('Policies', { exact: true }).fill('person')
  await dialog.getByLabel('Token TTL').fill('20m')
  await dialog.getByLabel('TTL of a secret ID').fill('1h')
  await dialog.getByLabel('Uses of a secret ID').fill('2')
  await page.keyboard.press('Enter')
  await dialog.getByRole('alert').filter({ hasText: 'letters, digits' }).waitFor()
  await expectNoAxeViolations(page, 'creation of a role')
  await dialog.getByLabel('Name').fill('web')
  await page.keyboard.press('Enter')
  await page.getByRole('table', { name: 'Roles' }).getByRole('link', { name: 'web' }).waitFor()
  const role = await call('GET', 'auth/approle/role/web')
  assert.deepEqual(
    [role['token_policies'], role['token_ttl'], role['secret_id_ttl'], role['secret_id_num_uses']],
    [['person'], 1200, 3600, 2],
  )
  const { role_id } = await call('GET', 'auth/approle/role/web/role-id')
  const { secret_id } = await call('PUT', 'auth/approle/role/web/secret-id', {})
  const { policies } = await call('PUT', 'auth/approle/login', { role_id, secret_id })
  assert.deepEqual(policies, ['default', 'person'])
})

async function isExact(text: Promise<string>): Promise<boolean> {
  return /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(await text)
}

test('a key, Enter and a click show the exact time of each relative one', { skip }, async (t) => {
  const { open } = await keyboardWorld(t)
  const page = await open('/access/tokens')
  const inRow = page.getByRole('table', { name: 'Tokens' }).locator('time').first()
  await inRow.waitFor()
  assert.equal(await isExact(inRow.innerText()), false)
  await page.keyboard.press('T')
  await eventually(() => isExact(inRow.innerText()), 'exact times')
  await inRow.click()
  await eventually(async () => !(await isExact(inRow.innerText())), 'relative times')

  await page.getByRole('table', { name: 'Tokens' }).getByRole('link').first().click()
  const created = page.getByRole('main').locator('dl time').first()
  await created.focus()
  await page.keyboard.press('Enter')
  await eventually(() => isExact(created.innerText()), 'the exact time')
  await expectFocus(page, /^TIME/)
  await expectNoAxeViolations(page, 'exact times')
})
