/** Policies in the web interface, in a real browser against a real server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { expectNoAxeViolations } from '../../helpers/browser/page.ts'
import { secretsAgent } from '../../helpers/browser/secrets-page.ts'
import { eventually } from '../../helpers/eventually.ts'

const skip = whyNoChromium() ?? false

function button(page: Page, name: string) {
  return page.getByRole('button', { name, exact: true })
}

test('policies are checked, written and deleted', { skip }, async (parent) => {
  const agent = await secretsAgent(parent)
  const { call, open } = agent

  await parent.test('a new policy is checked before it is saved, then saved, changed and deleted', async (t) => {
    const { page } = await open(t, '/policies')
    await button(page, 'Create a policy').click()
    await page.getByRole('textbox', { name: 'Name' }).fill('App')
    await page.keyboard.press('Enter')
    await page.waitForURL('**/ui/policies/app')
    const text = page.getByRole('textbox', { name: 'Document of app' })
    await text.fill('path "secret/data/app/*" {\n  capabilities = ["reed"]\n}\n')
    await page.getByText(/^line 2, column \d+: .*unknown capability "reed"/).waitFor()
    assert.equal(await button(page, 'Save').isDisabled(), true)
    await text.fill(
      'path "secret/data/app/*" {\ncapabilities=["read"]\n}\npath "secret/data/app/no" {\ncapabilities=["deny"]\n}',
    )
    await page.getByRole('textbox', { name: 'Path' }).fill('secret/data/app/db')
    await page.getByText('line 1, column 6').waitFor()
    await page.getByText('decides, grants read').waitFor()
    await page.getByRole('textbox', { name: 'Path' }).fill('secret/data/app/no')
    await page.getByText('decides, denies').waitFor()
    await page.getByRole('combobox', { name: 'Operation' }).selectOption('list')
    assert.match(page.url(), /path=secret%2Fdata%2Fapp%2Fno&verb=list$/)
    await button(page, 'Format').click()
    await eventually(
      async () => /\n {2}capabilities = \["read"\]\n/.test(await text.inputValue()),
      'the text is formatted',
    )
    await expectNoAxeViolations(page, 'policy')
    await button(page, 'Save').click()
    await page.getByText('Saved the policy app.').waitFor()
    const facts = page.getByText('Version 1, changed')
    await facts.waitFor()
    // The clock that refreshes relative times is behind by up to ten seconds.
    assert.doesNotMatch((await facts.textContent()) ?? '', /changed in/)
    assert.match(String((await call('GET', 'sys/policies/acl/app'))['policy']), /secret\/data\/app/)
    await button(page, 'Delete').click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('textbox').fill('app')
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click()
    await page.waitForURL('**/ui/policies')
    await page.getByRole('link', { name: 'default' }).waitFor()
    assert.equal(await page.getByRole('link', { name: 'app', exact: true }).count(), 0)
  })

  await parent.test('a failed check is shown, and does not prevent saving', async (t) => {
    await call('PUT', 'sys/policies/acl/unchecked', { policy: 'path "x" { capabilities = ["read"] }' })
    const { page } = await open(t, '/policies/unchecked?path=x')
    await page.getByText('decides, grants read').waitFor()
    const answers = { isFailing: true }
    await page.route('**/v1/sys/internal/ui/policy-check', (route) =>
      answers.isFailing ? route.fulfill({ status: 429, body: '{"errors":["too many requests"]}' }) : route.continue(),
    )
    await page.getByRole('textbox', { name: 'Document of unchecked' }).fill('path "x" { capabilities = ["deny"] }')
    await page.getByText('The document was not checked: too many requests').waitFor()
    await page.getByText('The request was not checked: too many requests').waitFor()
    assert.equal(await page.getByText('decides, grants read').count(), 0, 'no answer about another text')
    await expectNoAxeViolations(page, 'unchecked policy')
    assert.equal(await button(page, 'Save').isDisabled(), false)
    answers.isFailing = false
    const retries = page.getByRole('button', { name: 'Retry' })
    await retries.last().click()
    await page.getByText('decides, denies').waitFor()
    await retries.click()
    await page.getByText('The document was not checked').waitFor({ state: 'detached' })
  })

  await parent.test('only the last text is checked while the user types', async (t) => {
    await call('PUT', 'sys/policies/acl/typed', { policy: '# empty' })
    const { page } = await open(t, '/policies/typed')
    const checks: string[] = []
    page.on('request', (request) => {
      if (request.url().endsWith('/policy-check')) checks.push(request.postData() ?? '')
    })
    const text = page.getByRole('textbox', { name: 'Document of typed' })
    await text.fill('')
    await text.pressSequentially('path "typed/by/hand" { capabilities = ["reed"] }')
    await page.getByText('unknown capability "reed"').waitFor()
    assert.ok(checks.length < 20, `${checks.length} checks`)
    assert.match(checks.at(-1) ?? '', /reed/)
    const format = page.waitForResponse('**/policy-format')
    await button(page, 'Format').click()
    assert.equal((await format).status(), 200)
    await page.getByText(/^Line 1, column \d+: .*unknown capability "reed"/).waitFor()
  })

  await parent.test('a request is checked with further policies of the caller', async (t) => {
    await call('PUT', 'sys/policies/acl/other', { policy: 'path "secret/data/x" { capabilities = ["deny"] }' })
    await call('PUT', 'sys/policies/acl/mine', { policy: 'path "secret/data/x" { capabilities = ["read"] }' })
    const { page } = await open(t, '/policies/mine?path=/v1/secret/data/x')
    await page.getByText('decides, grants read').waitFor()
    await page.getByRole('textbox', { name: 'Together with the policy' }).fill('other')
    await button(page, 'Add').click()
    await page.getByText('decides, denies').first().waitFor()
    await button(page, 'Without the policy other').click()
    await page.getByText('decides, grants read').waitFor()
  })

  await parent.test(
    'settings of a policy stay, and a change by another client is not overwritten silently',
    async (t) => {
      const rule = 'path "secret/data/x" { capabilities = ["read"] }'
      await call('PUT', 'sys/policies/acl/short', { policy: rule, ttl: '24h', cas_required: true })
      const { page } = await open(t, '/policies/short')
      const text = page.getByRole('textbox', { name: 'Document of short' })
      await text.fill(`# mine\n${rule}`)
      await call('PUT', 'sys/policies/acl/short', {
        policy: `# theirs\n${rule}`,
        ttl: '24h',
        cas: 1,
        cas_required: true,
      })
      await button(page, 'Save').click()
      await page.getByText('Another client saved version 2 in the meantime.').waitFor()
      assert.match(String((await call('GET', 'sys/policies/acl/short'))['policy']), /theirs/)
      await button(page, 'Replace it with mine').click()
      await page.getByText('Saved the policy short.').waitFor()
      const saved = await call('GET', 'sys/policies/acl/short')
      assert.match(String(saved['policy']), /mine/)
      assert.equal(saved['cas_required'], true)
      assert.ok(saved['expiration'])
    },
  )

  await parent.test('a token that may only read is offered no change', async (t) => {
    await call('PUT', 'sys/policies/acl/fixed', { policy: 'path "x" { capabilities = ["read"] }' })
    const token = await agent.tokenWith(
      'path "sys/policies/acl" { capabilities = ["list"] } path "sys/policies/acl/*" { capabilities = ["read"] }',
    )
    const { page } = await open(t, '/policies', token)
    await page.getByRole('link', { name: 'fixed' }).click()
    await page.getByText('Your token may not change it').waitFor()
    for (const name of ['Save', 'Format', 'Delete']) assert.equal(await button(page, name).count(), 0, name)
    await page.goto(`${agent.url}/ui/policies/absent`)
    await page.getByText('There is no policy absent.').waitFor()
    await page.goto(`${agent.url}/ui/policies/root`)
    await page.getByText('The policy root grants everything.').waitFor()
  })
})
