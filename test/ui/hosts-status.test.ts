/** The view of the status in a browser, of a server that is not ready. */
import assert from 'node:assert/strict'
import { realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { expectNoAxeViolations, openUi } from '../helpers/browser/page.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

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
