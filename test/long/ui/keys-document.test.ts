/** The table of keys in docs/web-interface.md has the keys that the page lists in its views, and no others. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { startAgent, workDirectory } from '../../helpers/agent-process.ts'
import { ALLOC, makeAllocation } from '../../helpers/allocation.ts'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { openUi } from '../../helpers/browser/page.ts'
import { readGuide } from '../../helpers/guide.ts'

const skip = whyNoChromium() ?? false

interface ListedGroup {
  readonly title: string
  readonly keys: readonly (readonly string[])[]
}

/** A text, because it runs in the browser. */
const LISTED = `[...document.querySelectorAll('dialog[open] section')].map((section) => ({
  title: section.querySelector('h3').textContent,
  keys: [...section.querySelectorAll('dl > div')].map((row) => [
    row.querySelector('dt').textContent,
    row.querySelector('dd').textContent,
  ]),
}))`

type KeyTable = ReadonlyMap<string, readonly string[]>

/** Keys with their actions, by view. */
function documentedKeys(): KeyTable {
  const section = /^## Keys$([^]*?)^## /m.exec(readGuide('web-interface.md'))?.[1] ?? ''
  const rows = [...section.matchAll(/^\| ([^|`]+) \| `([^`]+)` \| (.+) \|$/gm)]
  const byView = Map.groupBy(rows, ([, view = '']) => view)
  return new Map([...byView].map(([view, found]) => [view, found.map(([, , key, action]) => `${key}: ${action}`)]))
}

/** What `?` lists in the current view. */
async function listedKeys(page: Page): Promise<KeyTable> {
  await page.keyboard.press('?')
  const dialog = page.getByRole('dialog', { name: 'Keys' })
  await dialog.waitFor()
  const groups = await page.evaluate<readonly ListedGroup[]>(LISTED)
  await page.keyboard.press('Escape')
  return new Map(
    groups.map(({ keys, title }) => {
      const texts = keys.map(([key = '', action = '']) => `${key.replaceAll(' then ', ' ')}: ${action}`)
      return [title, texts]
    }),
  )
}

function sortedKeys(table: ReadonlyMap<string, Iterable<string>>): readonly string[] {
  return [...table].flatMap(([view, keys]) => [...keys].map((key) => `${view} ${key}`)).toSorted()
}

interface VisitedView {
  readonly path: string
  /** Something of the loaded view. */
  readonly ready: string
}

const ROW = '[role=row] a'
const TAB = '[aria-current=page]'
/** Its key is bound when the page knows that the token may create something. */
const CREATE = '.view-actions .button-primary'

/** Every view that has keys. */
function viewsOf(nodeId: string, accessor: string): readonly VisitedView[] {
  return [
    { path: '/logs', ready: ROW },
    { path: `/logs/${ALLOC}/web`, ready: '[role=log] .log-row' },
    { path: `/logs/wall?tail=${ALLOC}/web`, ready: '[role=log]' },
    { path: '/hosts', ready: ROW },
    { path: `/hosts/${nodeId}`, ready: ROW },
    { path: '/files', ready: ROW },
    { path: `/files/${ALLOC}`, ready: ROW },
    { path: `/files/${ALLOC}/web/local/hello.txt`, ready: 'pre' },
    { path: `/files/${ALLOC}/web/local/hello.txt?as=tail`, ready: '.file-more' },
    { path: '/secrets', ready: CREATE },
    { path: '/secrets/secret/app/', ready: CREATE },
    { path: '/secrets/secret/app/db', ready: 'text=Show as JSON' },
    { path: '/policies', ready: CREATE },
    { path: '/access/tokens', ready: CREATE },
    { path: `/access/tokens/${accessor}`, ready: 'text=auth/token/root' },
    { path: '/access/leases', ready: TAB },
    { path: '/access/identity', ready: TAB },
    { path: '/access/auth', ready: ROW },
    { path: '/access/auth/userpass', ready: CREATE },
    { path: '/access/auth/approle', ready: CREATE },
    { path: '/totp', ready: CREATE },
    { path: '/totp/keys/totp/mail', ready: 'text=Show the code' },
    { path: '/cloud', ready: TAB },
    { path: '/dr', ready: 'h1' },
    { path: '/seal', ready: 'h1' },
    { path: '/status', ready: 'h1' },
  ]
}

test('the document has the keys of each view as the page lists them', { skip, timeout: 300_000 }, async (t) => {
  const dataDirectory = workDirectory(t)
  makeAllocation(join(dataDirectory, 'alloc'), ALLOC)
  const args = ['-dev', '-dev-no-demo', '-http-port', '0', `-data-dir=${dataDirectory}`]
  const agent = await startAgent(t, args)
  const token = /Token: (\S+)/.exec(agent.stdout())?.[1] ?? ''
  const call = async (method: string, path: string, body?: object): Promise<unknown> => {
    const init = { method, headers: { 'X-Vault-Token': token }, ...(body && { body: JSON.stringify(body) }) }
    const text = await (await fetch(`${agent.url}/v1/${path}`, init)).text()
    return text === '' ? undefined : JSON.parse(text)
  }
  await call('POST', 'secret/data/app/db', { data: { password: 'secret' } })
  for (const type of ['userpass', 'approle']) await call('POST', `sys/auth/${type}`, { type })
  await call('POST', 'sys/mounts/totp', { type: 'totp' })
  await call('POST', 'totp/keys/mail', { key: 'JBSWY3DPEHPK3PXP', account_name: 'ann' })
  const { data } = (await call('GET', 'auth/token/lookup-self')) as { data: { accessor: string } }
  const [node] = (await call('GET', 'nodes')) as { ID: string }[]

  const seen = new Map<string, Set<string>>()
  const { page } = await openUi(t, { url: agent.url, token })
  for (const { path, ready } of viewsOf(node?.ID ?? '', data.accessor)) {
    await page.goto(`${agent.url}/ui${path}`)
    await page.locator('main').locator(ready).first().waitFor()
    for (const [view, keys] of await listedKeys(page)) {
      // Views with the same title, such as the roles of AppRole and of cloud engines, may have different keys.
      seen.set(view, new Set([...(seen.get(view) ?? []), ...keys]))
    }
  }
  assert.deepEqual(sortedKeys(documentedKeys()), sortedKeys(seen), 'the table in docs/web-interface.md is wrong')
})
