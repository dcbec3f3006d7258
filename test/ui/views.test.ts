/**
 * The views of the web interface in one browser and against one process: by keys, with hostile data, with a restricted token, over a broken
 * connection, during a seal, and with a long log. `openUi` fails for each error of a script, each violation of the security policy, and
 * each request to another origin. test/long/ui has the details of each view.
 */
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { ALLOC } from '../helpers/allocation.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { HOSTILE, HOSTILE_LINES, hostileWorld } from '../helpers/browser/hostile-world.ts'
import { expectNoAxeViolations, openUi } from '../helpers/browser/page.ts'
import { eventually } from '../helpers/eventually.ts'

const skip = whyNoChromium() ?? false
const LONG_LINES = 120_000
const KEPT_LINES = 100_000
const LOG = '.log-list'

/** Fails if a text became an element or a script. */
async function expectOnlyText(page: Page, what: string): Promise<void> {
  const state = await page.evaluate(
    `({ hacked: 'hacked' in window, elements: document.querySelectorAll('main :is(img, script, svg, iframe)').length })`,
  )
  assert.deepEqual(state, { hacked: false, elements: 0 }, what)
}

/** Keys of a view may not be bound yet, so they are pressed until they have their effect. */
async function press(page: Page, keys: readonly string[], effect: () => Promise<boolean>): Promise<void> {
  await eventually(
    async () => {
      for (const key of keys) await page.keyboard.press(key)
      return eventually(effect, keys.join(' '), 2000).catch(() => false)
    },
    `the effect of ${keys.join(' ')}`,
  )
}

function button(page: Page, name: string | RegExp) {
  return page.getByRole('button', { name, exact: true })
}

function lines(from: number, count: number): string {
  return Array.from({ length: count }, (_, at) => `line ${from + at}\n`).join('')
}

test('the web interface shows all that a process has, and only what a token may see', { skip }, async (parent) => {
  const world = await hostileWorld(parent)

  await parent.test(
    'each view is reached and used by keys alone, shows hostile data as text, and is accessible',
    async (t) => {
      const { page } = await world.open(t, '/logs')
      const isAt = (pattern: RegExp) => async () =>
        pattern.test(decodeURIComponent(new URL(page.url()).pathname + page.url()))
      const check = async (what: string) => {
        await expectOnlyText(page, what)
        await expectNoAxeViolations(page, what)
      }
      const openFirst = (pattern: RegExp) => press(page, ['Home', 'Enter'], isAt(pattern))

      await page.getByRole('table', { name: 'Logs' }).getByRole('link').first().waitFor()
      await press(page, ['/'], () => page.evaluate('document.activeElement.tagName === "INPUT"'))
      await page.keyboard.type('web')
      await press(page, ['ArrowDown', 'Enter'], isAt(/logs\/a1b2c3d4.*\/web/))
      await page.getByText(HOSTILE_LINES[2] ?? '').waitFor()
      await press(page, ['k', 'Enter'], () => page.locator('.log-details').isVisible())
      await check('log')

      await press(page, ['g', 'h'], isAt(/hosts$/))
      await page.getByRole('link', { name: 'host-1' }).waitFor()
      await openFirst(/hosts\/.{36}/)
      await page.getByRole('figure').filter({ hasText: 'Network' }).waitFor()
      await check('host')
      await press(page, ['2'], isAt(/tab=metadata/))
      await page.getByText(HOSTILE).first().waitFor()
      await check('metadata')

      await press(page, ['g', 'f'], isAt(/files$/))
      await page.getByRole('link', { name: HOSTILE }).waitFor()
      await openFirst(/files\/a1b2c3d4/)
      await page.getByRole('link', { name: 'alloc/' }).waitFor()
      await press(page, ['Home', 'ArrowRight'], () => page.getByRole('link', { name: 'logs/' }).isVisible())
      await page.keyboard.press('ArrowLeft')
      await page.getByRole('link', { name: 'logs/' }).waitFor({ state: 'detached' })
      await page.goto(`${world.url}/ui/files/${ALLOC}/alloc/data/names`)
      // The allocation, above it, has that name, too.
      await page.getByRole('table', { name: 'Files' }).getByRole('link', { name: HOSTILE }).waitFor()
      await check('directory')
      await openFirst(/names\/</)
      await page.getByText(HOSTILE).last().waitFor()
      assert.ok((await page.locator('h1').innerText()).includes(String.raw`\u{202e}`))
      await check('file')

      await press(page, ['g', 's'], isAt(/secrets$/))
      await page.getByRole('link', { name: 'secret/' }).waitFor()
      await page.getByRole('link', { name: 'secret/' }).click()
      await page.getByRole('link', { name: /^app\/?$/ }).waitFor()
      await openFirst(/secret\/app\/$/)
      await page.getByRole('link', { name: HOSTILE }).waitFor()
      await openFirst(/secret\/app\/</)
      await button(page, `Show ${HOSTILE}`).click()
      await page.getByText(`${HOSTILE} 2`).waitFor()
      await check('secret')
      await press(page, ['3'], isAt(/tab=compare/))
      await page.getByText('Version 1 to version 2').waitFor()
      await check('compared versions')
      await press(page, ['1', 'e'], isAt(/tab=edit/))
      await button(page, 'Show and edit the value of plain').waitFor()
      await check('editor')
    },
  )

  await parent.test('views of access have their data, and a policy is checked while it is typed', async (t) => {
    const { page } = await world.open(t, '/policies')
    await page.getByRole('link', { name: 'default' }).click()
    await page.getByText('Check a request').waitFor()
    await expectNoAxeViolations(page, 'policy')
    for (const [path, text] of [
      ['access', 'root'],
      ['access/leases', 'auth/'],
      ['access/auth', 'token'],
      ['totp', 'No TOTP engine'],
      ['cloud', 'No cloud engine'],
      ['dr', 'Not replicated'],
      ['seal', 'is unsealed'],
      ['status', 'host-1'],
    ] as const) {
      await page.evaluate(`history.pushState(null, '', '/ui/${path}'); dispatchEvent(new PopStateEvent('popstate'))`)
      await page.getByRole('main').getByText(text).first().waitFor()
    }
  })

  await parent.test('a restricted token is offered what it may do, and nothing else', async (t) => {
    const { page } = await world.open(t, '/secrets/secret/app/db', world.restricted)
    await button(page, 'Show plain').click()
    await page.getByText('the-value').waitFor()
    for (const name of ['Edit', 'Delete', 'Destroy']) assert.equal(await button(page, name).count(), 0, name)
    await page.goto(`${world.url}/ui/hosts/${world.nodeId}?tab=metadata`)
    await page.getByText(HOSTILE).first().waitFor()
    assert.equal(await button(page, 'Add a key').count(), 0)
    assert.equal(await page.getByRole('button', { name: 'Collect garbage…' }).count(), 0)
    await page.goto(`${world.url}/ui/files/${ALLOC}`)
    await page.getByText('The policies of your token do not allow this.').waitFor()
    await page.goto(`${world.url}/ui/seal`)
    await page.getByText('is unsealed').waitFor()
    assert.equal(await button(page, 'Seal').count(), 0)
    await page.goto(`${world.url}/ui/logs/${ALLOC}/web`)
    await page.getByText('plain line').waitFor()
  })

  await parent.test('a tail continues after a broken connection without losing or repeating a line', async (t) => {
    writeFileSync(world.log, lines(0, 200))
    const { page } = await world.open(t, `/logs/${ALLOC}/web`)
    const last = () => page.locator('.log-text').last().innerText()
    await eventually(async () => (await last()) === 'line 199', 'the end is shown')
    world.proxy.isDown = true
    world.proxy.cut()
    await page.getByText('Disconnected, retrying').waitFor()
    appendFileSync(world.log, lines(200, 100))
    world.proxy.isDown = false
    await eventually(async () => (await last()) === 'line 299', 'the new end is shown')
    await page.keyboard.press('G')
    await page.getByText('Live').waitFor()
    const shown = await allLines(page)
    const remarks = shown.filter((text) => !text.startsWith('line '))
    assert.deepEqual(
      shown.filter((text) => text.startsWith('line ')),
      lines(0, 300).trimEnd().split('\n'),
    )
    assert.equal(remarks.length, 1)
    assert.match(remarks[0] ?? '', /^Disconnected at .* resumed .* at the same position\.$/)
  })

  await parent.test('a seal hides values, keeps the text of an editor, and the unseal brings all back', async (t) => {
    const { page } = await world.open(t, '/secrets/secret/app/db')
    const editor = await world.open(t, '/secrets/secret/app/db?tab=edit')
    await button(page, 'Show plain').click()
    await page.getByText('the-value').waitFor()
    const field = editor.page.getByRole('textbox', { name: 'Value of plain' })
    await button(editor.page, 'Show and edit the value of plain').click()
    await field.fill('typed before')
    await world.call('PUT', 'sys/seal')
    await page.getByText('The secrets core is sealed.').waitFor()
    assert.ok(!(await page.content()).includes('the-value'))
    await button(editor.page, 'Save').click()
    await editor.page
      .getByRole('alert')
      .filter({ hasText: /sealed/i })
      .first()
      .waitFor()
    assert.equal(await field.inputValue(), 'typed before')
    const other = await world.open(t, '/access')
    for (const path of ['/access', '/totp', '/cloud', '/policies']) {
      await other.page.goto(`${world.url}/ui${path}`)
      await other.page.locator('.state').getByText('The secrets core is sealed.').waitFor()
      await other.page.locator('.state').getByRole('link', { name: 'Unseal it' }).waitFor()
    }
    await other.page.goto(`${world.url}/ui/logs/${ALLOC}/web`)
    await other.page.locator('.log-note').getByText('The secrets core is sealed.').waitFor()
    await other.page.locator('.log-note').getByRole('link', { name: 'Unseal it' }).waitFor()
    await world.unseal()
    await other.page.getByText('Live').waitFor()
    const { page: anonymous } = await openUi(t, { url: world.url, path: '/access' })
    for (const path of ['/access', '/totp/mfa', '/policies', '/hosts', '/secrets/nomount/']) {
      await anonymous.goto(`${world.url}/ui${path}`)
      await anonymous
        .getByText(/^Log in to see /)
        .first()
        .waitFor()
    }
    await button(page, 'Show plain').waitFor()
    await button(editor.page, 'Save').click()
    await editor.page.getByText('Wrote version 3').waitFor()
  })

  await parent.test(
    'a log of 120,000 lines keeps the last 100,000, which are searched and scrolled with few elements',
    async (t) => {
      writeFileSync(world.longLog, lines(0, 10))
      const { page } = await world.open(t, `/logs/${ALLOC}/long?find=99999`)
      await page.getByText('line 9', { exact: true }).waitFor()
      appendFileSync(world.longLog, lines(10, LONG_LINES - 10))
      const last = page.locator('.log-text').last()
      await eventually(async () => (await last.innerText()) === `line ${LONG_LINES - 1}`, 'the end is shown')
      await page.getByText('1 match', { exact: true }).waitFor()
      assert.match(await page.locator('.log-state').innerText(), /last 100,000 lines/)
      await page.getByText(/keeps the last 100,000 lines; 20,\d{3} earlier lines were removed/).waitFor()
      await press(page, ['g', 'g'], () =>
        page.getByText(`line ${LONG_LINES - KEPT_LINES}`, { exact: true }).isVisible(),
      )
      await press(page, ['n'], () => page.locator('.log-selected', { hasText: 'line 99999' }).isVisible())
      assert.ok((await page.locator('.log-row').count()) < 120)
      await press(page, ['G'], async () => (await last.innerText()) === `line ${LONG_LINES - 1}`)
    },
  )
})

/** Scrolls through the tail. */
function allLines(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`(async () => {
    const list = document.querySelector('${LOG}')
    const found = new Map()
    for (let top = 0; top < list.scrollHeight + list.clientHeight; top += list.clientHeight) {
      list.scrollTop = top
      for (let frame = 0; frame < 2; frame++) await new Promise((resolve) => requestAnimationFrame(resolve))
      for (const row of list.querySelectorAll('[data-id]')) {
        found.set(Number(row.getAttribute('data-id')), row.querySelector('.log-text').textContent)
      }
    }
    return [...found].sort(([one], [other]) => one - other).map(([, text]) => text)
  })()`)
}
