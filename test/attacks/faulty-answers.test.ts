/** Answers of a host or server with values of wrong types or sizes: the web interface shows them or a failure, and can be used further. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { changeAnswers, openUi } from '../helpers/browser/page.ts'
import { eventually } from '../helpers/eventually.ts'
import { OPS, startHost } from '../ui/hosts-fixture.ts'

const skip = whyNoChromium() ?? false

const LATER_ANSWERS_MS = 200
const DEADLINE_MS = 30_000

type Change = (value: unknown, key: string) => unknown

/** Of the server itself. */
const KEPT = new Set(['ID', 'Status', 'NodeID'])
const CHANGES: Readonly<Record<string, Change>> = {
  'huge numbers': (value) => (typeof value === 'number' ? 1e300 : value),
  'negative numbers': (value) => (typeof value === 'number' ? -1e300 : value),
  'texts for numbers': (value) => (typeof value === 'number' ? 'x'.repeat(100_000) : value),
  'objects for texts': (value) => (typeof value === 'string' ? { constructor: null, props: { children: 'x' } } : value),
  'nulls for texts and numbers': (value) => (typeof value === 'object' ? value : null),
  'nulls for lists': (value) => (Array.isArray(value) ? null : value),
  'texts for objects': (value, key) => (key !== '' && typeof value === 'object' ? 'x' : value),
}

function changed(value: unknown, change: Change, key = ''): unknown {
  if (KEPT.has(key)) return value
  const next = change(value, key)
  if (Array.isArray(next)) return next.map((item) => changed(item, change, '0'))
  if (next !== value || typeof next !== 'object' || next === null) return next
  return Object.fromEntries(Object.entries(next).map(([name, member]) => [name, changed(member, change, name)]))
}

/** What a host reports: through the server, and from itself. */
const REPORTED = /\/v1\/(nodes|node|allocations|allocation|client)\b/

test('faulty answers of a host leave a page that can be used', { skip }, async (t) => {
  const agent = await startHost(t, (allocDir) => makeAllocation(allocDir, ALLOC, { Name: 'web.api[0]', JobID: 'web' }))
  const [node] = (await (await agent.ask('/v1/nodes')).json()) as readonly { readonly ID: string }[]
  const host = `/hosts/${node?.ID ?? ''}`
  const views = [
    '/hosts',
    host,
    `${host}?tab=metadata`,
    `${host}?tab=events`,
    '/logs',
    '/files',
    `/files/${ALLOC}/alloc`,
  ]
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: '/status' })
  for (const [what, change] of Object.entries(CHANGES)) {
    await t.test(what, async () => {
      // Loaded again: nothing of the answers before remains.
      await page.goto(`${agent.url}/ui/status`)
      await page.locator('h1').waitFor()
      await changeAnswers(page, REPORTED, (json) => changed(json, change))
      for (const view of views) {
        await page.evaluate(`history.pushState(null, '', '/ui${view}'); dispatchEvent(new PopStateEvent('popstate'))`)
        const shown = () => page.locator('main').innerText({ timeout: DEADLINE_MS })
        await eventually(async () => !/^(?:Loading|$)/.test((await shown()).trim()), `${view} is loaded`, DEADLINE_MS)
        // An answer that arrives later may make it blank.
        await page.waitForTimeout(LATER_ANSWERS_MS)
        assert.notEqual((await shown()).trim(), '', `${view} is blank`)
        assert.equal(await page.getByRole('link', { name: 'Status' }).isVisible(), true, view)
      }
      await page.getByRole('link', { name: 'Status' }).click()
      await page.getByRole('heading', { name: 'Status', level: 1 }).waitFor()
      // Later the hosts are shown, or a failure in their place; the other parts stay.
      const hosts = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Hosts' }) })
      await hosts.locator('dl, [role=alert]').waitFor({ timeout: DEADLINE_MS })
      await page.getByRole('heading', { name: 'Status', level: 1 }).waitFor({ timeout: DEADLINE_MS })
      await page.getByRole('region', { name: 'Readiness' }).getByText('listening').waitFor({ timeout: DEADLINE_MS })
      await page.unrouteAll({ behavior: 'ignoreErrors' })
    })
  }
})
