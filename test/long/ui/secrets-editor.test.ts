/** The editor of secrets in the web interface: conflicts, JSON, unsaved changes, permissions, hostile names and values, and a seal. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { expectNoAxeViolations } from '../../helpers/browser/page.ts'
import { sealableAgent, secretsAgent } from '../../helpers/browser/secrets-page.ts'

const skip = whyNoChromium() ?? false

function button(page: Page, name: string | RegExp) {
  return page.getByRole('button', { name, exact: true })
}

async function change(page: Page, key: string, value: string): Promise<void> {
  await button(page, `Show and edit the value of ${key}`).click()
  await page.getByRole('textbox', { name: `Value of ${key}` }).fill(value)
}

test('secrets are edited without losing the changes of anyone', { skip }, async (parent) => {
  const agent = await secretsAgent(parent)
  const { call, open } = agent

  await parent.test('of two pages, the second one compares both changes and chooses', async (t) => {
    await call('POST', 'secret/data/conflict', { data: { a: '1', b: '2', c: '3' } })
    const [first, second] = [
      await open(t, '/secrets/secret/conflict?tab=edit'),
      await open(t, '/secrets/secret/conflict?tab=edit'),
    ]
    await change(second.page, 'a', 'second a')
    await change(second.page, 'c', 'second c')
    await change(first.page, 'a', 'first a')
    await change(first.page, 'b', 'first b')
    await button(first.page, 'Save').click()
    await first.page.getByText('Wrote version 2').waitFor()
    const { page } = second
    await page.getByText('When you save, both changes are compared.').waitFor()
    await button(page, 'Save').click()
    await page.getByRole('heading', { name: 'Another client wrote version 2 in the meantime' }).waitFor()
    await page.getByText('Both changed one key: choose its value.').waitFor()
    assert.ok(!(await page.content()).includes('first a'))
    await expectNoAxeViolations(page, 'conflict')
    assert.equal(await button(page, 'Save the choice').isDisabled(), true)
    const row = page.getByRole('row', { name: /^a both/ })
    await row.getByRole('button', { name: 'Show theirs of a' }).click()
    await row.getByText('first a').waitFor()
    await row.getByRole('radio', { name: 'Use theirs for a' }).check()
    await button(page, 'Save the choice').click()
    await page.getByText('Wrote version 3').waitFor()
    assert.deepEqual((await call('GET', 'secret/data/conflict'))['data'], { a: 'first a', b: 'first b', c: 'second c' })
  })

  await parent.test('what is typed after a value was requested is its text', async (t) => {
    await call('POST', 'secret/data/typed', { data: { port: '1' } })
    const { page } = await open(t, '/secrets/secret/typed?tab=edit')
    await button(page, 'Show and edit the value of port').click()
    await page.keyboard.press('Control+a')
    await page.keyboard.type('23')
    await button(page, 'Add a key').click()
    await page.keyboard.type('1st')
    await page.keyboard.press('Control+s')
    await page.getByText('Wrote version 2').waitFor()
    assert.deepEqual((await call('GET', 'secret/data/typed'))['data'], { port: '23', '1st': '' })
  })

  await parent.test('JSON is edited, and a fault has its line and column', async (t) => {
    await call('POST', 'secret/data/json', { data: { a: '1' } })
    const { page } = await open(t, '/secrets/secret/json?tab=edit')
    await button(page, 'Edit as JSON').click()
    const field = page.getByRole('textbox', { name: 'Secret as JSON' })
    await field.fill('{\n  "a": 1,\n  "b" 2\n}')
    await page.getByText('Line 3, column 7:').waitFor()
    await expectNoAxeViolations(page, 'JSON with a fault')
    await button(page, 'Save').click()
    await page.getByText('Correct the marked faults first.').waitFor()
    await field.fill('{"big": 12345678901234567890, "one": 1.0, "list": [true]}')
    await page.getByText('Valid JSON').waitFor()
    await button(page, 'Edit as JSON').click()
    await page.getByRole('textbox', { name: 'Key 3' }).fill('renamed')
    await button(page, 'Save').click()
    await page.getByText('Wrote version 2').waitFor()
    const response = await fetch(`${agent.url}/v1/secret/data/json`, { headers: { 'X-Vault-Token': agent.token } })
    assert.match(await response.text(), /"data":\{"big":12345678901234567890,"one":1\.0,"renamed":\[true\]\}/)
  })

  await parent.test('unsaved changes are kept until the user discards them', async (t) => {
    await call('POST', 'secret/data/unsaved', { data: { a: '1' } })
    const { page } = await open(t, '/secrets/secret/unsaved')
    await button(page, 'Edit').click()
    await change(page, 'a', 'not saved')
    const dialog = page.getByRole('dialog', { name: 'Discard the changes?' })
    await page.getByRole('link', { name: 'Policies', exact: true }).click()
    await dialog.getByRole('button', { name: 'Stay' }).click()
    await page.goBack()
    await dialog.waitFor()
    await page.keyboard.press('Escape')
    assert.equal(await page.getByRole('textbox', { name: 'Value of a' }).inputValue(), 'not saved')
    assert.match(page.url(), /tab=edit$/)
    let asked = ''
    page.once('dialog', (alert) => {
      asked = alert.type()
      void alert.dismiss()
    })
    await page.close({ runBeforeUnload: true })
    await page.waitForTimeout(200)
    assert.equal(asked, 'beforeunload')
    await page.getByRole('link', { name: 'Policies', exact: true }).click()
    await dialog.getByRole('button', { name: 'Discard and leave' }).click()
    await page.waitForURL('**/ui/policies')
    assert.deepEqual((await call('GET', 'secret/data/unsaved'))['data'], { a: '1' })
  })

  await parent.test('a token that may only read is offered no change', async (t) => {
    await call('POST', 'secret/data/team/db', { data: { a: 'readable' } })
    await call('POST', 'secret/data/other', { data: { a: 'x' } })
    const token = await agent.tokenWith(
      'path "secret/data/team/*" { capabilities = ["read"] } path "secret/metadata/team/*" { capabilities = ["read", "list"] }',
    )
    const { page } = await open(t, '/secrets', token)
    await page.getByRole('link', { name: 'secret/' }).click()
    await page.getByText('Your token may not list this folder').waitFor()
    await button(page, 'Open a path').click()
    await page.getByRole('textbox', { name: 'Name below secret/' }).fill('team/')
    await page.keyboard.press('Enter')
    await page.getByRole('link', { name: 'db' }).click()
    await button(page, 'Show a').waitFor()
    await page.waitForLoadState('networkidle')
    for (const name of ['Edit', 'Delete', 'Delete all versions'])
      assert.equal(await button(page, name).count(), 0, name)
    await page.getByRole('link', { name: 'Versions (1)' }).click()
    await button(page, 'What changed in version 1').waitFor()
    assert.equal(await page.getByRole('button', { name: /^(Delete|Destroy)/ }).count(), 0)
    await page.getByRole('link', { name: 'Settings' }).click()
    await page.getByText('Kept versions').waitFor()
    assert.equal(await button(page, 'Save the settings').count(), 0)
    await page.goto(`${agent.url}/ui/secrets/secret/team/db?tab=edit`)
    await page.getByText('Your token may not write team/db.').waitFor()
    await page.goto(`${agent.url}/ui/secrets/secret/other`)
    await page.getByText('permission denied').waitFor()
  })

  await parent.test('a token that may write but not read replaces a secret', async (t) => {
    await call('POST', 'secret/data/blind', { data: { a: 'x' } })
    const token = await agent.tokenWith('path "secret/data/blind" { capabilities = ["update"] }')
    const { page } = await open(t, '/secrets/secret/blind?tab=edit', token)
    await page.getByText('Your token may not read this secret.').waitFor()
    await page.getByRole('textbox', { name: 'Key 1' }).fill('b')
    await page.getByRole('textbox', { name: 'Value of b' }).fill('y')
    await button(page, 'Save').click()
    await page.getByText('Wrote version 2').waitFor()
    assert.deepEqual((await call('GET', 'secret/data/blind'))['data'], { b: 'y' })
  })

  await parent.test('hostile names and values are text', async (t) => {
    const name = `<script>alert(1)</script>/"'%2e%2e<img src=x onerror=alert(1)>`
    const path = name.split('/').map(encodeURIComponent).join('/')
    const key = '<img src=x onerror="globalThis.hit=1">'
    await call('POST', `secret/data/${path}`, { data: { [key]: '<script>globalThis.hit=1</script>', __proto__x: '1' } })
    await call('POST', `secret/metadata/${path}`, { custom_metadata: { '<b>': '<i onclick=x>' } })
    const { page } = await open(t, '/secrets/secret')
    await page.getByRole('link', { name: '<script>alert(1)<' }).click()
    await page.getByRole('link', { name: 'script>/' }).click()
    await page.getByRole('link', { name: `"'%2e%2e<img` }).click()
    await button(page, `Show ${key}`).click()
    await page.getByText('<script>globalThis.hit=1</script>').waitFor()
    for (const tab of ['Versions', 'Compare', 'Settings']) {
      await page.getByRole('link', { name: new RegExp(`^${tab}`) }).click()
      await page.waitForURL(new RegExp(`tab=${tab.toLowerCase()}`))
    }
    await page.getByText('<i onclick=x>').waitFor()
    await button(page, 'Edit').click()
    await page.getByRole('textbox', { name: 'Key 1' }).fill('plain')
    await button(page, 'Save').click()
    await page.getByText('Wrote version 2').waitFor()
    assert.equal(await page.evaluate('globalThis.hit'), undefined)
  })

  await parent.test('a version that was written before the editor opened is not compared', async (t) => {
    await call('POST', 'secret/data/fresh', { data: { a: '1' } })
    const { page } = await open(t, '/secrets')
    const watch = page.waitForResponse((response) => response.url().includes('/watch/fresh'))
    await page.goto(`${agent.url}/ui/secrets/secret/fresh`)
    await watch
    await call('POST', 'secret/data/fresh', { data: { a: '2' } })
    await page.getByText('Version 2 was written').waitFor()
    await button(page, 'Edit').click()
    await page.getByText('Saving writes version 3').waitFor()
    assert.equal(await page.getByText('both changes are compared').count(), 0)
    await call('POST', 'secret/data/fresh', { data: { a: '3' } })
    await page.getByText('both changes are compared').waitFor()
  })

  await parent.test('a value of 1 MB is read, compared and changed', async (t) => {
    const value = 'x'.repeat(1 << 20)
    await call('POST', 'secret/data/large', { data: { a: value } })
    const { page } = await open(t, '/secrets/secret/large')
    await button(page, 'Show a').click()
    await page.waitForFunction('document.body.textContent.length > 1048576')
    await button(page, 'Hide a').click()
    await button(page, 'Edit').click()
    await change(page, 'a', `${value}y`)
    await button(page, 'Save').click()
    await page.getByText('Wrote version 2').waitFor()
    await page.getByRole('link', { name: 'Compare' }).click()
    await page.getByText('Version 1 to version 2: 1 changed').waitFor()
  })
})

test('a seal hides the values and keeps the text of the editor, which is saved after the unseal', {
  skip,
}, async (t) => {
  const { call, open, unseal, url } = await sealableAgent(t)
  await call('POST', 'secret/data/sealed', { data: { a: 'visible before' } })
  const { page } = await open(t, '/secrets/secret/sealed')
  const editor = await open(t, '/secrets/secret/sealed?tab=edit')
  await change(editor.page, 'a', 'typed before')
  await button(page, 'Show a').click()
  await page.getByText('visible before').waitFor()
  await call('PUT', 'sys/seal')
  await page.getByText('The secrets core is sealed.').waitFor()
  assert.ok(!(await page.content()).includes('visible before'))
  await page.getByRole('link', { name: 'Unseal it' }).first().waitFor()
  await button(editor.page, 'Save').click()
  await editor.page
    .getByRole('alert')
    .filter({ hasText: /sealed/i })
    .first()
    .waitFor()
  assert.equal(await editor.page.getByRole('textbox', { name: 'Value of a' }).inputValue(), 'typed before')
  const later = await open(t, '/secrets/secret')
  await later.page.getByText('The secrets core is sealed.').waitFor()
  await unseal()
  await button(page, 'Show a').waitFor()
  await later.page.getByRole('link', { name: 'sealed' }).waitFor()
  await button(editor.page, 'Save').click()
  await editor.page.getByText('Wrote version 2').waitFor()
  assert.equal(editor.page.url(), `${url}/ui/secrets/secret/sealed`)
})
