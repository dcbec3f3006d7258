/** The replication view against two real clusters: state, failover, planned switch. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Locator, Page } from 'playwright-core'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { expectFocus, expectNoAxeViolations, openUi } from '../../helpers/browser/page.ts'
import { type DrServer, drPair } from '../../helpers/dr-pair.ts'
import { eventually } from '../../helpers/eventually.ts'

const skip = whyNoChromium() ?? false
const HOSTILE_ID = '<b onclick=x>berlin'

async function openDr(t: TestContext, server: DrServer, token: string): Promise<Page> {
  const { page } = await openUi(t, { url: server.agent.url, path: '/dr', token })
  await page.getByRole('status').first().waitFor()
  return page
}

async function enterShares(part: Locator, shares: readonly string[]): Promise<void> {
  const field = part.getByLabel(/^Key share/)
  for (const share of shares) {
    await field.fill(share)
    await part.getByRole('button', { name: 'Submit share' }).click()
    // The field disappears with the last share.
    await eventually(
      async () => (await field.inputValue({ timeout: 100 }).catch(() => '')) === '',
      'the field is empty',
    )
  }
}

async function documentText(page: Page): Promise<string> {
  return page.evaluate(
    'document.documentElement.outerHTML + [...document.querySelectorAll("input")].map((field) => field.value).join()',
  )
}

/** A demoted primary joins the new one through the pages of both. */
async function rejoin(old: Page, next: Page, shares: readonly string[]): Promise<void> {
  const joining = old.getByRole('region', { name: 'Join the new primary' })
  await joining.getByRole('button', { name: 'Generate the public key' }).click()
  const key = (await joining.getByLabel('Public key', { exact: true }).textContent()) ?? ''
  const adding = next.getByRole('region', { name: 'Add a secondary' })
  await adding.getByLabel('ID of the secondary').fill('old')
  await adding.getByLabel('Public key').fill(key)
  await adding.getByRole('button', { name: 'Create activation token' }).click()
  await adding.getByRole('button', { name: 'Show the activation token' }).click()
  const activation = (await adding.locator('.secret-text').textContent()) ?? ''
  await joining.getByLabel('3. Activation token of the new primary').fill(activation)
  await joining.getByRole('button', { name: 'Join with key shares' }).click()
  await enterShares(joining, shares)
  await old.getByText('Healthy: this secondary follows').waitFor()
  await next.getByText('Healthy: old is connected').waitFor()
}

test('a failover is prepared with key shares, confirmed, and the promoted server serves', { skip }, async (t) => {
  const { primary, secondary } = await drPair(t, { id: HOSTILE_ID })
  const { shares, token } = primary.keys
  const first = await openDr(t, primary, token)
  await first.getByText(`Healthy: ${HOSTILE_ID} is connected`).waitFor()
  await first
    .getByRole('img', { name: /^Lag in entries over time/ })
    .locator('canvas')
    .waitFor()
  await expectNoAxeViolations(first, 'primary')
  await first.close()

  const page = await openDr(t, secondary, token)
  await page.getByText('Healthy: this secondary follows').waitFor()
  await expectNoAxeViolations(page, 'secondary')
  await primary.kill()
  await page.getByText(/^Disconnected from/).waitFor()
  const part = page.getByRole('region', { name: 'Failover' })
  await part.getByText('This page cannot query').waitFor()
  await part.getByRole('button', { name: 'Prepare the promotion' }).click()
  await expectFocus(page, 'INPUT Key share of the primary')
  const wrong = Buffer.alloc(33, 7).toString('base64')
  await enterShares(part, [wrong, shares[0] ?? ''])
  await part.getByRole('alert').waitFor()
  await part.getByText('The attempt starts again').waitFor()
  assert.equal((await secondary.status())['mode'], 'secondary')
  await enterShares(part, shares)
  await part.getByText('Ready to promote').waitFor()
  await expectFocus(page, 'INPUT State of the demoted primary')
  for (const share of [wrong, ...shares]) assert.ok(!(await documentText(page)).includes(share), 'shares are not kept')
  const promote = part.getByRole('button', { name: 'Promote', exact: true })
  assert.equal(await promote.isDisabled(), true)
  await expectNoAxeViolations(page, 'confirmation of a promotion')
  await part.getByLabel('Type "promote" to confirm').fill('promote')
  await promote.click()
  await page.getByText('Promoted to primary of epoch').waitFor()
  assert.equal(await secondary.health(), 200)
  assert.equal((await secondary.ask('GET', 'auth/token/lookup-self', undefined, token)).status, 200)

  // The old primary returns. It cannot verify a token at the login or return its capabilities, and is demoted and joined on its page.
  await primary.restart()
  await primary.unseal(primary.keys)
  await eventually(async () => (await primary.status())['fence_reason'] === 'replaced', 'the old primary is fenced')
  const { page: old } = await openUi(t, { url: primary.agent.url, path: '/dr' })
  await old.getByRole('button', { name: 'Log in' }).first().click()
  await old.getByRole('dialog').locator('input[type="password"]').fill(token)
  await old.getByRole('dialog').getByRole('button', { name: 'Log in' }).click()
  await old.getByRole('dialog').waitFor({ state: 'detached' })
  const demotion = old.getByRole('region', { name: 'Demotion' })
  await demotion.getByText(`This server was replaced by "${HOSTILE_ID}" at`).waitFor()
  assert.equal(await old.getByText('✗ failed').count(), 0, 'no check fails in this state')
  await expectNoAxeViolations(old, 'fenced primary')
  await demotion.getByRole('button', { name: 'Demote this primary' }).click()
  await old.getByRole('dialog').getByLabel('Type "demote" to confirm').fill('demote')
  await old.getByRole('dialog').getByRole('button', { name: 'Demote', exact: true }).click()
  await rejoin(old, page, shares)
  await primary.follows(secondary)
})

test('an operation token that is not used is deleted when the view is left', { skip }, async (t) => {
  const { primary, secondary } = await drPair(t)
  const page = await openDr(t, secondary, primary.keys.token)
  const part = page.getByRole('region', { name: 'Failover' })
  await part.getByRole('button', { name: 'Prepare the promotion' }).click()
  await enterShares(part, primary.keys.shares.slice(0, 1))
  await part.getByText('1 of 2 key shares accepted').waitFor()
  await enterShares(part, ['not a share'])
  await part.getByRole('alert').waitFor()
  await part.getByText('1 of 2 key shares accepted').waitFor()
  const attempt = 'sys/replication/dr/secondary/generate-operation-token/attempt'
  assert.equal((await secondary.told('GET', attempt, undefined, '')).body['started'], true)
  await part.getByRole('button', { name: 'Cancel' }).click()
  await eventually(
    async () => (await secondary.told('GET', attempt, undefined, '')).body['started'] === false,
    'the attempt is canceled',
  )
  await part.getByRole('button', { name: 'Prepare the promotion' }).click()
  await enterShares(part, primary.keys.shares)
  await part.getByText('Ready to promote').waitFor()
  const deletion = page.waitForRequest(/operation-token\/delete/)
  await page.getByRole('link', { name: 'Seal', exact: true }).click()
  await deletion
  assert.equal((await secondary.status())['mode'], 'secondary')
})

test('a planned switch exchanges the roles through the pages of both servers', { skip }, async (t) => {
  const { primary, secondary } = await drPair(t)
  const { shares, token } = primary.keys
  await primary.told('PUT', 'sys/mounts/kv', { type: 'kv' })
  await primary.told('PUT', 'kv/before', { a: 1 })
  const [old, next] = [await openDr(t, primary, token), await openDr(t, secondary, token)]

  const promotion = next.getByRole('region', { name: 'Failover' })
  await promotion.getByRole('button', { name: 'Prepare the promotion' }).click()
  await enterShares(promotion, shares)
  await promotion.getByText('Ready to promote').waitFor()

  const planned = old.getByRole('region', { name: 'Planned switch' })
  const demote = planned.getByRole('button', { name: 'Demote this primary' })
  assert.equal(await demote.isDisabled(), true, 'the user has not checked the other page')
  await planned.getByLabel('The page of the secondary shows the version').check()
  await planned.getByLabel('The page of the secondary shows “Ready to promote”').check()
  await demote.click()
  await expectNoAxeViolations(old, 'confirmation of a demotion')
  await old.getByRole('dialog').getByLabel('Type "demote" to confirm').fill('demote')
  await old.getByRole('dialog').getByRole('button', { name: 'Demote', exact: true }).click()
  const joining = old.getByRole('region', { name: 'Join the new primary' })
  const state = (await joining.getByLabel('State of the demoted primary', { exact: true }).textContent()) ?? ''
  await expectNoAxeViolations(old, 'demoted primary')

  await promotion.getByLabel('State of the demoted primary').fill('999-0123456789abcdef')
  await promotion.getByText(/does not have all commits/).waitFor()
  await promotion.getByLabel('State of the demoted primary').fill(state)
  await promotion.getByLabel('Type "promote" to confirm').fill('promote')
  await promotion.getByRole('button', { name: 'Promote', exact: true }).click()
  await next.getByText('Promoted to primary of epoch').waitFor()

  await rejoin(old, next, shares)
  await primary.follows(secondary)
  assert.equal((await secondary.told('GET', 'kv/before', undefined, token)).data['a'], 1)
})

test('a restricted token sees the state of a primary and why it may not switch', { skip }, async (t) => {
  const { primary } = await drPair(t)
  const { auth } = (await primary.told('PUT', 'auth/token/create', { policies: ['default'] })).body
  const page = await openDr(t, primary, (auth as { readonly client_token: string }).client_token)
  await page.getByText('Healthy: b is connected').waitFor()
  await page.getByText('It needs “update” and “sudo”').waitFor()
  await page.getByLabel('The page of the secondary shows the version').check()
  await page.getByLabel('The page of the secondary shows “Ready to promote”').check()
  assert.equal(await page.getByRole('button', { name: 'Demote this primary' }).isDisabled(), true)
  assert.equal(await page.getByRole('region', { name: 'Add a secondary' }).count(), 0)
})
