/** The login of the web interface against a real server: token, userpass, second factor, AppRole, logout and expired tokens. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { URI } from 'otpauth'
import type { Page } from 'playwright-core'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { expectNoAxeViolations, openUi } from '../../helpers/browser/page.ts'
import { cloudAgent } from '../../helpers/cloud-agent.ts'
import { eventually } from '../../helpers/eventually.ts'

const skip = whyNoChromium() ?? false
const PASSWORD = 'correct horse battery'

async function world(t: TestContext) {
  const core = await cloudAgent(t)
  const { good } = core
  await good('PUT', 'sys/auth/userpass', { type: 'userpass' })
  await good('PUT', 'sys/policies/acl/reader', { policy: 'path "secret/*" { capabilities = ["read"] }' })
  await good('PUT', 'auth/userpass/users/alice', { password: PASSWORD, token_policies: 'reader' })
  const open = (path = '/access', token?: string) =>
    openUi(t, { url: core.agent.url, path, ...(token !== undefined && { token }) })
  const lookUp = async (token: string) => (await core.ask('GET', 'auth/token/lookup-self', undefined, token)).status
  return { ...core, open, lookUp }
}

async function openDialog(page: Page) {
  await page.getByRole('button', { name: 'Log in' }).first().click()
  return page.getByRole('dialog', { name: 'Log in' })
}

async function userLogin(page: Page, password: string, username = 'alice') {
  const dialog = await openDialog(page)
  await dialog.getByRole('radio', { name: 'Username' }).check()
  await dialog.getByLabel('Username', { exact: true }).last().fill(username)
  await dialog.getByLabel('Password').fill(password)
  await page.keyboard.press('Enter')
  return dialog
}

/** The token that the page sends. */
function sentToken(page: Page): Promise<string> {
  return page
    .waitForRequest((request) => /^Bearer ./.test(request.headers()['authorization'] ?? ''))
    .then((request) => (request.headers()['authorization'] ?? '').slice('Bearer '.length))
}

test('a wrong token is refused with its reason, and a right one opens the view', { skip }, async (t) => {
  const { open, token } = await world(t)
  const { page } = await open()
  const dialog = await openDialog(page)
  const field = dialog.getByRole('textbox', { name: 'Token' })
  assert.equal(await page.evaluate('document.activeElement.type'), 'password', 'the field has the focus')
  for (const [given, reason] of [
    ['s.wrong', /does not know this token/],
    ['with space', /not a token/],
    ['', /Enter a token/],
  ] as const) {
    await field.fill(given)
    await page.keyboard.press('Enter')
    await dialog.getByRole('alert').filter({ hasText: reason }).waitFor()
  }
  await dialog.getByRole('radio', { name: 'Username' }).check()
  assert.equal(await dialog.getByRole('alert').count(), 0, 'the error of the other method is gone')
  await dialog.getByRole('radio', { name: 'Token' }).check()
  await expectNoAxeViolations(page, 'login dialog')
  await field.fill(` ${token}\n`)
  await page.keyboard.press('Enter')
  await dialog.waitFor({ state: 'hidden' })
  await page.getByRole('table', { name: 'Tokens' }).waitFor()
  assert.equal(await page.evaluate('sessionStorage.length'), 0)
  assert.ok(!(await page.content()).includes(token))
})

test('a user logs in with a password, and the logout revokes the token', { skip }, async (t) => {
  const { lookUp, open } = await world(t)
  const { page } = await open('/access/auth')
  const dialog = await userLogin(page, 'wrong password')
  await dialog.getByRole('alert').filter({ hasText: 'invalid username or password' }).waitFor()
  await dialog.getByLabel('Password').fill(PASSWORD)
  const sent = sentToken(page)
  await dialog.getByRole('button', { name: 'Log in' }).click()
  const token = await sent
  await dialog.waitFor({ state: 'hidden' })
  await page.getByText('userpass-alice').waitFor()
  assert.equal(await lookUp(token), 200)
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByRole('button', { name: 'Log in' }).first().waitFor()
  await eventually(async () => (await lookUp(token)) === 403, 'the token is revoked')
})

test('a token that is kept in the tab is used after a reload, and revoked at logout', { skip }, async (t) => {
  const { lookUp, open } = await world(t)
  const { page } = await open('/access/auth')
  const dialog = await openDialog(page)
  await dialog.getByRole('radio', { name: 'Username' }).check()
  await dialog.getByLabel('Username', { exact: true }).last().fill('alice')
  await dialog.getByLabel('Password').fill(PASSWORD)
  await dialog.getByLabel('Keep the token until this tab is closed').check()
  await page.keyboard.press('Enter')
  await page.getByText('userpass-alice').waitFor()
  const token = String(await page.evaluate('sessionStorage.getItem("outpost.token")'))
  await page.reload()
  await page.getByText('userpass-alice').waitFor()
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByRole('button', { name: 'Log in' }).first().waitFor()
  await eventually(async () => (await lookUp(token)) === 403, 'the token is revoked')
  assert.equal(await page.evaluate('sessionStorage.length'), 0)
})

test('a login with a second factor needs a code, and a wrong one can be corrected', { skip }, async (t) => {
  const { good, open } = await world(t)
  await good('PUT', 'sys/mfa/method/totp/phone', { issuer: 'Example', max_validation_attempts: 9 })
  const id = String((await good('GET', 'sys/mfa/method/totp/phone')).body.data?.['id'])
  const first = await good('PUT', 'auth/userpass/login/alice', { password: PASSWORD }, '')
  const { entity_id: entityId } = first.body['auth'] as { readonly entity_id: string }
  const made = await good('PUT', 'sys/mfa/method/totp/phone/admin-generate', { entity_id: entityId })
  await good('PUT', 'identity/mfa/login-enforcement/people', { mfa_method_ids: id, identity_entity_ids: entityId })
  const totp = URI.parse(String(made.body.data?.['url']))
  assert.ok('period' in totp)
  const { page } = await open('/access/auth')
  const dialog = await userLogin(page, PASSWORD)
  const code = dialog.getByLabel('Code of phone')
  await code.waitFor()
  await dialog.getByRole('button', { name: 'Verify' }).click()
  await dialog.getByRole('alert').filter({ hasText: 'Enter a code.' }).waitFor()
  await dialog.getByRole('button', { name: 'Back' }).click()
  assert.equal(await dialog.getByRole('radio', { name: 'Username' }).isChecked(), true)
  assert.equal(await dialog.getByLabel('Username', { exact: true }).last().inputValue(), 'alice')
  await dialog.getByLabel('Password').fill(PASSWORD)
  await page.keyboard.press('Enter')
  await code.fill('000000')
  await page.keyboard.press('Enter')
  await dialog.getByRole('alert').filter({ hasText: 'The code is wrong or was already used' }).waitFor()
  await expectNoAxeViolations(page, 'second factor')
  await code.fill(totp.generate())
  await dialog.getByRole('button', { name: 'Verify' }).click()
  await dialog.waitFor({ state: 'hidden' })
  await page.getByText('userpass-alice').waitFor()
})

test('a program logs in with AppRole, also at another mount', { skip }, async (t) => {
  const { good, open } = await world(t)
  await good('PUT', 'sys/auth/programs', { type: 'approle' })
  await good('PUT', 'auth/programs/role/web', { token_policies: 'reader' })
  const roleId = String((await good('GET', 'auth/programs/role/web/role-id')).body.data?.['role_id'])
  const secretId = String((await good('PUT', 'auth/programs/role/web/secret-id', {})).body.data?.['secret_id'])
  const { page } = await open('/access/auth')
  const dialog = await openDialog(page)
  await dialog.getByRole('radio', { name: 'AppRole' }).check()
  await dialog.getByLabel('Role ID').fill(roleId)
  await dialog.getByLabel('Secret ID').fill('wrong')
  await dialog.getByLabel('Mount path').fill('programs/')
  await page.keyboard.press('Enter')
  await dialog.getByRole('alert').filter({ hasText: 'invalid' }).waitFor()
  await dialog.getByLabel('Secret ID').fill(secretId)
  await page.keyboard.press('Enter')
  await dialog.waitFor({ state: 'hidden' })
  await page.getByText('programs', { exact: true }).first().waitFor()
})

test('a token that was revoked while in use ends the session, and the login is offered', { skip }, async (t) => {
  const { good, open } = await world(t)
  const { auth } = (await good('PUT', 'auth/token/create', { policies: ['root'], ttl: '1h' })).body
  const { client_token: token } = auth as { readonly client_token: string }
  const { page } = await open('/access/tokens', token)
  await page.getByRole('table', { name: 'Tokens' }).waitFor()
  await good('PUT', 'auth/token/revoke', { token })
  await page.keyboard.press('r')
  const dialog = page.getByRole('dialog', { name: 'Log in' })
  await dialog.getByText('Your token has expired or was revoked').waitFor()
  assert.equal(await page.getByRole('table', { name: 'Tokens' }).count(), 0, 'its data is gone')
  assert.equal(await page.evaluate('sessionStorage.length'), 0)
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'hidden' })
})

test('a token without a permission stays logged in', { skip }, async (t) => {
  const { good, open } = await world(t)
  const { auth } = (await good('PUT', 'auth/token/create', { policies: ['reader'], no_default_policy: true })).body
  const { client_token: token } = auth as { readonly client_token: string }
  const { page } = await open('/access/tokens', token)
  await page.getByText('The policies of your token do not allow this.').waitFor()
  await page.getByRole('button', { name: 'Retry' }).click()
  await page.getByText('The policies of your token do not allow this.').waitFor()
  await page.getByRole('button', { name: 'Log out' }).waitFor()
  assert.equal(await page.getByRole('dialog').count(), 0)
})
