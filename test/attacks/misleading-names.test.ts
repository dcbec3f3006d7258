/** Names and texts that look like others in the web interface: by characters that change the order of the rest, or that have no shape. */
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { makeAllocation } from '../helpers/allocation.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { openUi } from '../helpers/browser/page.ts'
import { secretsAgent } from '../helpers/browser/secrets-page.ts'
import { OPS, startHost } from '../ui/hosts-fixture.ts'

const skip = whyNoChromium() ?? false
const ALLOC = 'a1b2c3d4-0000-4000-8000-0000000000e1'
/** Shown as "safe-gnp.exe" with its end hidden or reversed. */
const MISLEADING = 'safe-\u202eexe.png\u2066\u200b\u0007'
const VISIBLE = String.raw`safe-\u{202e}exe.png\u{2066}\u{200b}\u{7}`

/** All that a person sees or hears of the page; a text, because it runs in the browser. */
const SHOWN = `(() => {
  const attributes = ['title', 'aria-label', 'alt', 'placeholder']
  const elements = [...document.querySelectorAll('*')]
  return [document.title, document.body.textContent]
    .concat(elements.flatMap((element) => attributes.map((name) => element.getAttribute(name) ?? '')))
    .join('\\n')
})()`

async function expectVisible(page: Page, expected: string, what: string): Promise<void> {
  const text = await page.evaluate<string>(SHOWN)
  assert.ok(text.includes(expected), `${what}: the name is not shown`)
  assert.doesNotMatch(text, /[\u200b\u202a-\u202e\u2066-\u2069]/, what)
  assert.ok(!text.includes('\u0007'), what)
}

test('a name of a task, job or allocation shows each of its characters', { skip }, async (t) => {
  const agent = await startHost(t, (allocDir) => {
    const directory = makeAllocation(allocDir, ALLOC, {
      Name: MISLEADING,
      JobID: MISLEADING,
      Tasks: { web: { State: 'running', StartedAt: '2026-11-21T10:00:00Z' } },
    })
    mkdirSync(join(directory, 'alloc/data'), { recursive: true })
    writeFileSync(join(directory, 'alloc/logs/web.stdout.0'), `paid 1\u202e0001 \u061c\u200bEUR\u2028next\n`)
  })
  const wall = `/logs/wall?tail=${ALLOC}&tail=${encodeURIComponent(`job/default/${encodeURIComponent(MISLEADING)}`)}`
  const views = ['/logs', '/logs?kind=jobs', `/logs/${ALLOC}`, wall, '/files', `/files/${ALLOC}`]
  const { page } = await openUi(t, { url: agent.url, token: OPS })
  for (const path of views) {
    await page.goto(`${agent.url}/ui${path}`)
    await page.getByText(VISIBLE.slice(0, 14)).first().waitFor()
    await expectVisible(page, VISIBLE, path)
  }
})

test('keys of a secret, descriptions of engines and policies show each of their characters', { skip }, async (t) => {
  const agent = await secretsAgent(t)
  await agent.call('POST', 'sys/mounts/team', { type: 'kv', options: { version: '2' }, description: MISLEADING })
  await agent.call('POST', 'team/data/app', { data: { [MISLEADING]: 'x' } })
  const { page } = await agent.open(t, '/')
  for (const path of ['/secrets', '/secrets/team/app']) {
    await page.goto(`${agent.url}/ui${path}`)
    await page.getByText(VISIBLE.slice(0, 14)).first().waitFor()
    await expectVisible(page, VISIBLE, path)
  }
  // The editor of a policy says which characters hide a rule.
  const policy = 'path "secret/data/app" {\n  capabilities = ["read"] # \u202e\n}\n'
  await agent.call('POST', 'sys/policies/acl/app', { policy })
  await page.goto(`${agent.url}/ui/policies/app`)
  await page.getByText('Line 2 has the invisible character U+202E').waitFor()
})
