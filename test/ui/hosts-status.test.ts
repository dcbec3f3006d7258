/** The view of the status in a browser, of a server that is not ready. */
import assert from 'node:assert/strict'
import { realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { changeAnswers, expectNoAxeViolations, openUi } from '../helpers/browser/page.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'
import { OPS, startHost } from './hosts-fixture.ts'

test('a failing check is first, with what to do and a link to it', { skip: whyNoChromium() }, async (t) => {
  const directory = realpathSync(temporaryDirectory(t))
  const file = join(directory, 'agent.hcl')
  const parts = [
    'server { enabled = true }',
    'client { enabled = true }',
    'acl { enabled = false }',
    'ports { http = 0 }',
  ]
  writeFileSync(file, [`data_dir = "${directory}/data"`, ...parts].join('\n'))
  const { url } = await agentHere(t, ['-config', file, '-log-level', 'error'])
  const { page } = await openUi(t, { url, path: '/status' })
  const first = page.locator('.check-row').first()
  await first.getByText('failing').waitFor()
  assert.match(await first.innerText(), /seal[\s\S]+not initialized[\s\S]+outpost operator unseal/)
  await page.locator('.host-status', { hasText: 'server and client' }).getByText('not ready').waitFor()
  await page.getByRole('link', { name: '1 ready' }).waitFor()
  await expectNoAxeViolations(page, 'status')
  await first.getByRole('link', { name: 'Seal' }).click()
  await page.waitForURL('**/ui/seal')
})

const DISCONNECTED = 'DR secondary "berlin" disconnected for 12 s: a failover to it would lose later writes'

test('a check with a warning is no ok, and names what is missing', { skip: whyNoChromium() }, async (t) => {
  const { url } = await startHost(t, () => undefined)
  const { page } = await openUi(t, { url, token: OPS })
  // As of a primary whose only secondary was stopped: test/system/dr-health.test.ts.
  await page.route('**/v1/agent/ready?*', (route) =>
    route.fulfill({
      json: {
        ready: true,
        role: 'active',
        checks: [
          { name: 'disk', state: 'ok', reason: 'writable' },
          {
            name: 'replication',
            state: 'ok',
            reason: 'DR primary, 0 of 1 secondaries connected',
            warnings: [DISCONNECTED],
          },
        ],
        warnings: [DISCONNECTED, 'another warning'],
      },
    }),
  )
  await page.goto(`${url}/ui/status`)
  const first = page.locator('.check-row').first()
  await first.getByText('replication', { exact: true }).waitFor()
  assert.match(await first.innerText(), /^warning\s+replication\s[^]*0 of 1[^]*"berlin" disconnected[^]*dr status/)
  assert.equal(await first.getByText('ok', { exact: true }).count(), 0)
  assert.equal(await page.getByText(DISCONNECTED).count(), 1, 'a warning is shown once')
  await page.getByRole('heading', { name: 'Warnings' }).waitFor()
  await page.getByText('another warning').waitFor()
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme })
    await expectNoAxeViolations(page, `warning of a check, ${colorScheme}`)
  }
})

test('a host whose heartbeat is late shows the age of the last one', { skip: whyNoChromium() }, async (t) => {
  const { url } = await startHost(t, () => undefined)
  const { page } = await openUi(t, { url, path: '/hosts', token: OPS })
  const status = page.getByRole('table', { name: 'Hosts' }).locator('.table-row').getByRole('cell').nth(1)
  await status.getByText('ready').waitFor()
  assert.equal(await status.innerText(), 'ready')
  // As of a server whose agent was killed: test/cluster/api/nodes-operations.test.ts.
  await changeAnswers(page, /\/v1\/nodes?[/?]/, (json, request) => {
    const hasAge = new URL(request.url()).searchParams.get('heartbeat_age') === 'true'
    const withAge = (host: unknown) => (hasAge ? Object.assign({}, host, { SecondsSinceHeartbeat: 21 }) : host)
    return Array.isArray(json) ? json.map(withAge) : withAge(json)
  })
  // Without a reload of the page, within a few seconds.
  await status.getByText(/^last heartbeat 2\d sec\. ago$/).waitFor({ timeout: 8000 })
  assert.match(await status.innerText(), /^ready/)
  assert.match((await status.locator('time').getAttribute('title')) ?? '', /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/)
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme })
    await expectNoAxeViolations(page, `late heartbeat, ${colorScheme}`)
  }
  await page.setViewportSize({ width: 360, height: 700 })
  const isCut = `(({ clientWidth, scrollWidth }) => scrollWidth > clientWidth)(document.querySelector('.heartbeat').closest('.cell'))`
  assert.equal(await page.evaluate(isCut), false, 'it fits a narrow screen')
  await page.setViewportSize({ width: 1280, height: 800 })
  assert.equal(await page.evaluate(isCut), false, 'it fits a wide screen')
  await page.getByRole('link', { name: 'web-host' }).click()
  await page
    .locator('.host-status')
    .getByText(/^last heartbeat 2\d sec\. ago$/)
    .waitFor()
})
