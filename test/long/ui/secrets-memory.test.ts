/** What the page keeps of a secret value after its view was left, how a narrow and a dark page look to axe, and the polling of versions. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { expectNoAxeViolations, openUi } from '../../helpers/browser/page.ts'
import { secretsAgent } from '../../helpers/browser/secrets-page.ts'

const skip = whyNoChromium() ?? false

/** Whether a text is in the memory of the page's scripts. */
async function isInHeap(page: Page, text: string): Promise<boolean> {
  const session = await page.context().newCDPSession(page)
  let snapshot = ''
  session.on('HeapProfiler.addHeapSnapshotChunk', ({ chunk }) => (snapshot += chunk))
  await session.send('HeapProfiler.collectGarbage')
  await session.send('HeapProfiler.takeHeapSnapshot', { reportProgress: false })
  await session.detach()
  assert.ok(snapshot.length > 100_000)
  return snapshot.includes(text)
}

test('nothing of a value stays in memory after the view is left', { skip }, async (t) => {
  const { call, open } = await secretsAgent(t)
  await call('POST', 'secret/data/memory', { data: { a: 'kept-in-memory-1' } })
  await call('POST', 'secret/data/memory', { data: { a: 'kept-in-memory-2' } })
  const { page } = await open(t, '/secrets/secret/memory')
  await page.getByRole('button', { name: 'Show a', exact: true }).click()
  await page.getByText('kept-in-memory-2').waitFor()
  assert.equal(await isInHeap(page, 'kept-in-memory-2'), true)
  await page.getByRole('link', { name: 'Compare' }).click()
  await page.getByRole('button', { name: 'Show a in version 1' }).click()
  await page.getByText('kept-in-memory-1').waitFor()
  await page.getByRole('button', { name: 'Edit', exact: true }).click()
  await page.getByRole('button', { name: 'Show and edit the value of a' }).click()
  await page.getByRole('button', { name: 'Edit as JSON' }).click()
  await page.getByRole('button', { name: 'Cancel' }).click()
  await page.getByRole('button', { name: 'Show a', exact: true }).waitFor()
  await page.getByRole('link', { name: 'Policies', exact: true }).click()
  await page.getByRole('link', { name: 'default' }).click()
  await page.getByText('Check a request').waitFor()
  assert.equal(await isInHeap(page, 'kept-in-memory'), false)
})

test('the views have no accessibility violations and fit narrow screens, in light and dark', { skip }, async (t) => {
  const { call, token, url } = await secretsAgent(t)
  await call('POST', 'secret/data/look', {
    data: { password: 'a', [`long-${'key'.repeat(40)}`]: 'b', json: { c: [1] } },
  })
  await call('POST', 'secret/data/look', { data: { password: 'b' } })
  const paths = ['', '?tab=versions', '?tab=compare', '?tab=settings', '?tab=edit'].map(
    (rest) => `/secrets/secret/look${rest}`,
  )
  for (const colorScheme of ['light', 'dark'] as const) {
    const { page } = await openUi(t, { url, token, colorScheme, viewport: { width: 360, height: 760 } })
    for (const path of ['/secrets', '/secrets/secret', ...paths, '/policies', '/policies/default?path=x']) {
      await page.goto(`${url}/ui${path}`)
      await page.locator('h1').waitFor()
      await page.waitForLoadState('load')
      await page.waitForTimeout(500)
      await expectNoAxeViolations(page, `${path}, ${colorScheme}`)
      assert.equal(await page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'), true, path)
      assert.equal(await page.evaluate('document.querySelector("main").scrollWidth <= window.innerWidth'), true, path)
    }
  }
})

test('without the right to watch, a new version is noticed by polling', { skip }, async (t) => {
  const agent = await secretsAgent(t)
  await agent.call('POST', 'secret/data/polled', { data: { a: '1' } })
  const token = await agent.tokenWith(
    'path "secret/data/*" { capabilities = ["read"] } path "secret/metadata/*" { capabilities = ["read"] }',
  )
  const { page } = await agent.open(t, '/secrets/secret/polled', token)
  await page.getByRole('button', { name: 'Show a', exact: true }).waitFor()
  await agent.call('POST', 'secret/data/polled', { data: { a: '2' } })
  await page.getByText('Version 2 was written').waitFor()
})
