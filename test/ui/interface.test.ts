/** The frame of the web interface in a real browser: navigation, keys, login, accessibility, and its security policy. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { expectFocus, expectNoAxeViolations, openUi } from '../helpers/browser/page.ts'
import { eventually } from '../helpers/eventually.ts'

const skip = whyNoChromium() ?? false

const atEnd: (() => unknown)[] = []
// While the file is loaded: in a test, it would stop the agent after that test.
after(async () => {
  for (const end of atEnd.splice(0)) await end()
})

let shared: ReturnType<typeof startDevAgent> | undefined

async function startDevAgent() {
  const t = { after: (end: () => unknown) => void atEnd.push(end) }
  const agent = await startAgent(t, ['-dev', '-http-port', '0', `-data-dir=${workDirectory(t)}`])
  return { url: agent.url, token: /Token: (\S+)/.exec(agent.stdout())?.[1] ?? '' }
}

/** One agent for the tests of this file, which do not change it. */
function devAgent() {
  shared ??= startDevAgent()
  return shared
}

test('every section has no accessibility violations, in light and dark', { skip }, async (t) => {
  const { token, url } = await devAgent()
  const { page } = await openUi(t, { url, token })
  await page.getByRole('link', { name: 'Secrets' }).waitFor()
  const links = page.getByRole('navigation', { name: 'Views' }).getByRole('link')
  const sections = await links.evaluateAll((all) =>
    all.map((link) => ({ path: link.getAttribute('href'), title: link.textContent })),
  )
  assert.ok(sections.length >= 11)
  let before = ''
  for (const { path, title } of sections) {
    await page.emulateMedia({ colorScheme: 'light' })
    // In the same document, which has axe already.
    await page.evaluate(`history.pushState(null, '', '${path}'); dispatchEvent(new PopStateEvent('popstate'))`)
    await page.locator('h1').waitFor()
    // Set after the heading was rendered.
    before = await eventually(async () => {
      const found = await page.title()
      return found !== before && found.endsWith('· outpost') && found
    }, 'the page has its title')
    await expectNoAxeViolations(page, `${title}, light`)
    // The scheme changes colors only.
    await page.emulateMedia({ colorScheme: 'dark' })
    await expectNoAxeViolations(page, `${title}, dark`, ['color-contrast'])
  }
})

test('keys open views, the list of keys and the palette, and the focus returns', { skip }, async (t) => {
  const { token, url } = await devAgent()
  const { page } = await openUi(t, { url, token, path: '/logs' })
  await page.locator('h1').waitFor()
  // Repeated, because on a busy machine the keys may not be bound yet, or are too far apart for a sequence.
  await eventually(async () => {
    await page.keyboard.press('g')
    await page.keyboard.press('h')
    return new URL(page.url()).pathname === '/ui/hosts'
  }, 'the keys open the hosts')
  await page.keyboard.press('?')
  const keys = page.getByRole('dialog', { name: 'Keys' })
  await keys.getByText('Go to Secrets').waitFor()
  await keys.getByText('Ctrl/⌘ k', { exact: true }).waitFor()
  await page.keyboard.press('Escape')
  await keys.waitFor({ state: 'hidden' })
  const commands = page.getByRole('button', { name: 'Commands' })
  await commands.focus()
  await page.keyboard.press('Enter')
  await page.keyboard.type('go to logs')
  await page.keyboard.press('Enter')
  await page.waitForURL('**/ui/logs')
  await page.goBack()
  await page.waitForURL('**/ui/hosts')
  // Also if the other view is loaded only now.
  await page.getByRole('heading', { name: 'Hosts', level: 1 }).waitFor()
  const palette = page.getByRole('combobox', { name: 'Command' })
  await palette.waitFor({ state: 'hidden' })
  await page.keyboard.press('Control+k')
  await palette.waitFor()
  await page.keyboard.press('Control+k')
  await palette.waitFor({ state: 'hidden' })
  await page.keyboard.press('Control+k')
  await palette.waitFor()
  await page.keyboard.press('Escape')
  await palette.waitFor({ state: 'hidden' })
  assert.equal(await page.evaluate('document.activeElement.textContent'), 'Commands')
})

test('a search is left for its rows, a whole header sorts, and the palette ends the session', { skip }, async (t) => {
  const { token, url } = await devAgent()
  const { page } = await openUi(t, { url, token, path: '/hosts' })
  await page.getByRole('link', { name: /./ }).last().waitFor()
  await page.getByRole('columnheader', { name: 'Disk' }).click({ position: { x: 5, y: 17 } })
  await page.waitForURL('**/ui/hosts?sort=-disk')
  const focus = () => page.evaluate('document.activeElement.tagName')
  for (const key of ['Escape', 'Enter']) {
    await page.keyboard.press('/')
    assert.equal(await focus(), 'INPUT')
    await page.keyboard.press(key)
    assert.equal(await focus(), 'BODY')
  }
  await page.keyboard.press('/')
  await page.keyboard.press('ArrowDown')
  await page.locator('.table-row-selected').waitFor()
  await page.keyboard.press('Enter')
  await page.waitForURL(/ui\/hosts\/[0-9a-f-]{36}/)
  for (const [words, path] of [
    ['dr', '**/ui/dr'],
    ['disk', '**/ui/hosts'],
  ] as const) {
    await page.keyboard.press('Control+k')
    await page.keyboard.type(words)
    await page.keyboard.press('Enter')
    await page.waitForURL(path)
  }
  await page.keyboard.press('Control+k')
  await page.keyboard.type('log out')
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Log in' }).first().waitFor()
})

test('the first Tab offers the content, and the navigation is a menu on a narrow screen', { skip }, async (t) => {
  const { token, url } = await devAgent()
  const { page } = await openUi(t, { url, token, path: '/hosts', viewport: { width: 380, height: 700 } })
  await page.locator('h1').waitFor()
  await page.keyboard.press('Tab')
  assert.equal(await page.evaluate('document.activeElement.textContent.trim()'), 'Skip to the content')
  const menu = page.getByRole('button', { name: 'Menu' })
  assert.equal(await page.getByRole('link', { name: 'Logs' }).isVisible(), false)
  await menu.click()
  await page.getByRole('link', { name: 'Logs' }).waitFor()
  await page.getByRole('link', { name: 'Logs' }).focus()
  await page.keyboard.press('Escape')
  await page.getByRole('link', { name: 'Logs' }).waitFor({ state: 'hidden' })
  await expectFocus(page, 'BUTTON Menu')
  await page.keyboard.press('Enter')
  await page.getByRole('link', { name: 'Logs' }).click()
  await page.waitForURL('**/ui/logs')
  assert.equal(await page.getByRole('link', { name: 'Hosts' }).isVisible(), false)
  await expectFocus(page, /^MAIN/)
  assert.equal(await page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'), true)
})

test('a wrong token is refused with its reason, and a right one ends the login', { skip }, async (t) => {
  const directory = workDirectory(t)
  const sha256 = '288965a1f2c883c71bff8a4b3a1b76cc77d11e65f70910d5feff411a4e5fe1b3' // of "management"
  const policy = 'node { policy = "write" } agent { policy = "read" } namespace "*" { policy = "write" }'
  const watcher = '0e7f3c5c909ce8afb978a208d639e85af2171df2ec0003a07f13ad97878ef053' // of "watcher"
  const watch = `token "watch" {\n sha256 = "${watcher}"\n policy = "node { policy = \\"read\\" }"\n }`
  const acl = `acl {\n enabled = true\n ${watch}\n token "ops" {\n sha256 = "${sha256}"\n policy = <<EOT\n${policy}\nEOT\n }\n}`
  const agent = await startAgent(t, ['-config', writeConfig(directory, acl)])
  const { page } = await openUi(t, { url: agent.url, path: '/files' })
  await page.getByText('Log in to see files').waitFor()
  await page.goto(`${agent.url}/ui/logs`)
  await page.getByText('Log in to see logs').waitFor()
  await page.getByRole('main').getByRole('button', { name: 'Log in' }).click()
  const dialog = page.getByRole('dialog', { name: 'Log in' })
  await dialog.getByRole('textbox', { name: 'Token' }).fill('wrong')
  await page.keyboard.press('Enter')
  await dialog.getByRole('alert').waitFor()
  await dialog.getByRole('textbox', { name: 'Token' }).fill('management')
  await page.keyboard.press('Enter')
  await dialog.waitFor({ state: 'hidden' })
  await page.getByRole('button', { name: 'Log out' }).waitFor()
  assert.equal(await page.evaluate('sessionStorage.length'), 0, 'the token is in memory only')
  await page.reload()
  await page.getByRole('main').getByRole('button', { name: 'Log in' }).click()
  await dialog.getByRole('textbox', { name: 'Token' }).fill('watcher')
  await page.keyboard.press('Enter')
  await page.getByText('No allocation that you may see').waitFor()
})

test('a page that the browser keeps in memory has neither token nor values when it is shown again', {
  skip,
}, async (t) => {
  const { token, url } = await devAgent()
  const { page } = await openUi(t, { url, path: '/status' })
  await page.getByRole('button', { name: 'Log in' }).first().click()
  const dialog = page.getByRole('dialog', { name: 'Log in' })
  await dialog.getByRole('textbox', { name: 'Token' }).fill(token)
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Log out' }).waitFor()
  await page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
  await page.getByRole('button', { name: 'Log in' }).first().waitFor()
  const loaded = page.waitForEvent('load')
  await page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))").catch(() => undefined)
  await loaded
  await page.getByRole('button', { name: 'Log in' }).first().waitFor()
})

test('scripts that a page adds do not run', { skip }, async (t) => {
  const { token, url } = await devAgent()
  const { page } = await openUi(t, {
    url,
    token,
    path: '/hosts',
    expected: /Content Security Policy|Trusted(HTML|Script)/,
  })
  await page.locator('h1').waitFor()
  const result = await page.evaluate(`(async () => {
    const tried = {}
    try { document.body.innerHTML += '<img src=x onerror="window.hacked = 1">' } catch (error) { tried.html = error.name }
    // In a task of its own: what the debugger runs at once may use eval.
    await new Promise((done) => setTimeout(() => {
      try { window.eval('1') } catch (error) { tried.eval = error.name }
      done()
    }))
    const script = document.createElement('script')
    try { script.textContent = 'window.hacked = 2'; document.body.append(script) } catch (error) { tried.script = error.name }
    const button = document.createElement('button')
    try { button.setAttribute('onclick', 'window.hacked = 3') } catch (error) { tried.handler = error.name }
    document.body.append(button)
    button.click()
    await fetch('https://example.com/').catch((error) => { tried.fetch = error.name })
    await new Promise((resolve) => setTimeout(resolve, 200))
    return { tried, hacked: window.hacked ?? null }
  })()`)
  assert.deepEqual(result, {
    tried: { html: 'TypeError', eval: 'EvalError', script: 'TypeError', handler: 'TypeError', fetch: 'TypeError' },
    hacked: null,
  })
})
