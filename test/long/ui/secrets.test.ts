/** Secrets in the web interface, in a real browser against a real server: browse, write, versions, differences, changes by others. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { expectNoAxeViolations } from '../../helpers/browser/page.ts'
import { secretsAgent } from '../../helpers/browser/secrets-page.ts'
import { eventually } from '../../helpers/eventually.ts'

const skip = whyNoChromium() ?? false

function bodyText(page: Page): Promise<string> {
  return page.evaluate<string>('document.body.innerText')
}

function button(page: Page, name: string | RegExp) {
  return page.getByRole('button', { name, exact: true })
}

test('secrets are browsed, written, compared, deleted and restored', { skip }, async (parent) => {
  const agent = await secretsAgent(parent)
  const { call, open } = agent

  await parent.test('an engine is enabled, and a secret is created and read there', async (t) => {
    const { page } = await open(t, '/secrets')
    await button(page, 'Enable a KV engine').click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('textbox', { name: 'Path' }).fill('team/kv')
    await dialog.getByRole('button', { name: 'Enable' }).click()
    await page.waitForURL('**/ui/secrets/team%2Fkv')
    await page.getByText('There are no secrets in this engine.').waitFor()
    await button(page, 'Create a secret').click()
    await page.getByRole('textbox', { name: 'Name below team/kv/' }).fill('app/ü db')
    await page.keyboard.press('Enter')
    await page.getByRole('textbox', { name: 'Key 1' }).fill('password')
    await page.getByRole('textbox', { name: 'Value of password' }).fill('first value')
    await button(page, 'Save').click()
    await page.getByText('Wrote version 1').waitFor()
    await button(page, 'Show password').click()
    await page.getByText('first value').waitFor()
    assert.deepEqual((await call('GET', 'team/kv/data/app/%C3%BC%20db'))['data'], { password: 'first value' })
    await page.getByRole('link', { name: 'app', exact: true }).click()
    await page.getByRole('link', { name: 'ü db' }).waitFor()
    await expectNoAxeViolations(page, 'folder')
  })

  await parent.test('a hidden value is not in the page, and is gone after the view is left', async (t) => {
    await call('POST', 'secret/data/hidden', { data: { password: 'hunter-two', plain: 'x' } })
    const { page } = await open(t, '/secrets/secret/hidden')
    await button(page, 'Show password').waitFor()
    assert.ok(!(await page.content()).includes('hunter-two'))
    await button(page, 'Show password').click()
    assert.ok((await bodyText(page)).includes('hunter-two'))
    await button(page, 'Hide password').click()
    assert.ok(!(await page.content()).includes('hunter-two'))
    await button(page, 'Show password').click()
    await page.getByRole('link', { name: 'Policies', exact: true }).click()
    await page.getByRole('heading', { name: 'Policies', level: 1 }).waitFor()
    assert.ok(!(await page.content()).includes('hunter-two'))
  })

  await parent.test('a value is copied without showing it', async (t) => {
    await call('POST', 'secret/data/copied', { data: { password: 'for the clipboard' } })
    const { page } = await open(t, '/secrets/secret/copied')
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await button(page, 'Copy password').click()
    await page.getByText('The clipboard is cleared in 30 s.').waitFor()
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), 'for the clipboard')
    assert.ok(!(await page.content()).includes('for the clipboard'))
  })

  await parent.test('what changed yesterday is two clicks away', async (t) => {
    await call('POST', 'secret/data/history', { data: { a: '1', b: '2', c: '3' } })
    await call('POST', 'secret/data/history', { data: { a: '1', b: 'new-b', d: '4' } })
    await call('POST', 'secret/data/history', { data: { a: '9', b: 'new-b', d: '4' } })
    const { page } = await open(t, '/secrets/secret/history')
    await page.getByRole('link', { name: 'Versions (3)' }).click()
    await expectNoAxeViolations(page, 'versions')
    await button(page, 'What changed in version 2').click()
    await page.getByText('Version 1 to version 2: 1 changed, 1 added, 1 removed').waitFor()
    const row = page.getByRole('row', { name: /^b changed/ })
    assert.ok(!(await page.content()).includes('new-b'))
    await row.getByRole('button', { name: 'Show b in version 2' }).click()
    await row.getByText('new-b').waitFor()
    await page.getByRole('combobox', { name: 'To' }).selectOption('3')
    await page.getByText('Version 1 to version 3: 2 changed, 1 added, 1 removed').waitFor()
    assert.match(page.url(), /from=1&to=3$/)
    await button(page, 'Today').click()
    await page.getByText('All keys of version 3').waitFor()
    await expectNoAxeViolations(page, 'compare')
  })

  await parent.test('an old version is read, and its values are written again', async (t) => {
    await call('POST', 'secret/data/old', { data: { a: 'old value' } })
    await call('POST', 'secret/data/old', { data: { a: 'new value' } })
    const { page } = await open(t, '/secrets/secret/old?tab=versions')
    await page.getByRole('link', { name: '1', exact: true }).click()
    await page.getByText('Version 1 is shown, and version 2 is the current one.').waitFor()
    await button(page, 'Show a').click()
    await page.getByText('old value').waitFor()
    await page.getByRole('link', { name: 'Write these values again' }).click()
    await button(page, 'Save').click()
    await page.getByText('Wrote version 3').waitFor()
    assert.deepEqual((await call('GET', 'secret/data/old'))['data'], { a: 'old value' })
  })

  await parent.test('versions are deleted, undeleted and destroyed, which needs a typed confirmation', async (t) => {
    await call('POST', 'secret/data/folder/doomed', { data: { a: '1' } })
    await call('POST', 'secret/data/folder/doomed', { data: { a: '2' } })
    const { page } = await open(t, '/secrets/secret/folder/doomed')
    await button(page, 'Delete').click()
    await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click()
    await page.getByText('Version 2 was deleted.').waitFor()
    await button(page, 'Undelete version 2').click()
    await button(page, 'Show a').waitFor()
    await page.getByRole('link', { name: /^Versions/ }).click()
    await button(page, 'Destroy version 1').click()
    const dialog = page.getByRole('dialog')
    const destroy = dialog.getByRole('button', { name: 'Destroy', exact: true })
    assert.equal(await destroy.isDisabled(), true)
    await dialog.getByRole('textbox').fill('doomed')
    await destroy.click()
    await page.getByText('destroyed', { exact: true }).waitFor()
    await button(page, 'Delete all versions').click()
    await page.getByRole('dialog').getByRole('textbox').fill('doomed')
    await page.getByRole('dialog').getByRole('button', { name: 'Delete all' }).click()
    await page.waitForURL('**/ui/secrets/secret/folder/')
    await page.getByText('This folder has no secrets.').waitFor()
  })

  await parent.test('a write by another client is announced, an own one is not', async (t) => {
    await call('POST', 'secret/data/watched', { data: { a: '1' } })
    const { page } = await open(t, '/secrets')
    const watch = page.waitForResponse((response) => response.url().includes('/watch/watched'))
    await page.goto(`${agent.url}/ui/secrets/secret/watched`)
    await watch
    await call('POST', 'secret/data/watched', { data: { a: 'theirs' } })
    await page.getByText('Version 2 was written').waitFor()
    await button(page, 'Reload').click()
    await page.getByText('Version 2, written').waitFor()
    assert.equal(await page.getByText('was written').count(), 0)
    await button(page, 'Edit').click()
    await button(page, 'Show and edit the value of a').click()
    await page.getByRole('textbox', { name: 'Value of a' }).fill('mine')
    // The event of the own write comes before its response.
    await page.route('**/v1/secret/data/watched', async (route) => {
      const response = await route.fetch()
      await page.waitForTimeout(800)
      assert.equal(await page.getByText('was written').count(), 0)
      await route.fulfill({ response })
    })
    await button(page, 'Save').click()
    await page.getByText('Version 3, written').waitFor()
    await page.unrouteAll()
    await call('POST', 'secret/metadata/watched', { custom_metadata: { team: 'ops' } })
    await page.getByText('The secret has new settings').waitFor()
    assert.equal(await page.getByText('Version 3 was written').count(), 0)
  })

  await parent.test('settings and custom metadata are changed', async (t) => {
    await call('POST', 'secret/data/settings', { data: { a: '1' } })
    const { page } = await open(t, '/secrets/secret/settings?tab=settings')
    await page.getByRole('textbox', { name: 'Kept versions' }).fill('3')
    await page.getByRole('textbox', { name: 'Delete versions after' }).fill('720h')
    await page.getByRole('checkbox').check()
    await button(page, 'Add a key').click()
    await page.getByRole('textbox', { name: 'Key 1' }).fill('owner')
    await page.getByRole('textbox', { name: 'Value 1' }).fill('ops')
    await expectNoAxeViolations(page, 'settings')
    await button(page, 'Save the settings').click()
    await page.getByText('Saved the settings').waitFor()
    const { cas_required, custom_metadata, delete_version_after, max_versions } = await call(
      'GET',
      'secret/metadata/settings',
    )
    assert.deepEqual([max_versions, cas_required, delete_version_after], [3, true, '720h0m0s'])
    assert.deepEqual(custom_metadata, { owner: 'ops' })
  })

  await parent.test('a mount without versions is read and written', async (t) => {
    await call('POST', 'sys/mounts/plain', { type: 'kv', options: { version: '1' } })
    await call('POST', 'plain/app', { a: '1' })
    const { page } = await open(t, '/secrets/plain')
    await page.getByRole('link', { name: 'app' }).click()
    await button(page, 'Show a').waitFor()
    assert.equal(await page.getByRole('link', { name: /^Versions/ }).count(), 0)
    await button(page, 'Edit').click()
    await button(page, 'Show and edit the value of a').click()
    await page.getByRole('textbox', { name: 'Value of a' }).fill('2')
    await call('POST', 'plain/app', { a: 'theirs' })
    await button(page, 'Save').click()
    await page.getByText('Another client wrote this secret in the meantime').waitFor()
    await button(page, 'All mine').click()
    await button(page, 'Save the choice').click()
    await page.getByText('Wrote app.').waitFor()
    assert.deepEqual(await call('GET', 'plain/app'), { a: '2' })
    await button(page, 'Delete').click()
    await page.getByRole('dialog').getByRole('textbox').fill('app')
    await page.getByRole('dialog').getByRole('button', { name: 'Delete all' }).click()
    await page.getByText('There are no secrets in this engine.').waitFor()
  })

  await parent.test('50,000 names are listed, filtered and searched', async (t) => {
    await call('POST', 'sys/mounts/many', { type: 'kv', options: { version: '2' } })
    const names = Array.from({ length: 50_000 }, (_, index) => `service-${String(index).padStart(5, '0')}`)
    for (let at = 0; at < names.length; at += 1000) {
      const secrets = Object.fromEntries(names.slice(at, at + 1000).map((name) => [name, { data: { a: '1' } }]))
      await call('POST', 'many/import/folder', { secrets })
    }
    const { page } = await open(t, '/secrets/many/folder/')
    await page.getByText('50000 names').waitFor()
    const rows = page.getByRole('table', { name: 'Names' }).getByRole('row')
    assert.ok((await rows.count()) < 100)
    await page.keyboard.press('End')
    await page.getByRole('link', { name: 'service-49999' }).waitFor()
    await page.keyboard.press('/')
    await page.keyboard.type('31337')
    await page.getByText('1 of 50000 names').waitFor()
    assert.match(page.url(), /\/folder\/\?q=31337$/)
    await page.goto(`${agent.url}/ui/secrets/many?q=3133*&below=true`)
    await page.getByText('No secret below this folder matches.').waitFor()
    await page.getByRole('textbox', { name: 'Search' }).fill('service-3133*')
    await page.getByText('10 secrets').waitFor()
    await page.getByRole('link', { name: 'folder/service-31337' }).click()
    await button(page, 'Show a').waitFor()
    await eventually(async () => (await page.title()).startsWith('service-31337'), 'the title names the secret')
  })
})
