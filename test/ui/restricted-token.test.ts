/** What the web interface shows to a token that may do a part only: the way to its secrets, and what is missing for a view. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { type ResultantAcl, reachableIn } from '../../ui/views/secrets/reachable.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { expectNoAxeViolations } from '../helpers/browser/page.ts'
import { secretsAgent } from '../helpers/browser/secrets-page.ts'

const skip = whyNoChromium() ?? false

const READS = { capabilities: ['read'] }
const LISTS = { capabilities: ['list'] }
const ACL: ResultantAcl = {
  root: false,
  exact_paths: {
    'secret/metadata/listed': LISTS,
    'secret/data/top': READS,
    'secret/data/deep/er/one': READS,
    'secret/data/denied/one': { capabilities: ['deny'] },
    'secret/delete/hidden': { capabilities: ['update'] },
    'sys/mounts': READS,
  },
  glob_paths: {
    'secret/data/team-a/': READS,
    'secret/metadata/team-a/': { capabilities: ['list', 'read'] },
    'secret/data/app-': READS,
    'secret/data/+/config': READS,
    '+/data/by-any/*': READS,
    'other/data/no/': READS,
  },
}

function reach(folder: string) {
  return reachableIn(ACL, { path: 'secret/', version: 2 }, folder)
}

test('the names that policies contain lead to their folders and secrets', () => {
  assert.deepEqual(reach(''), {
    names: ['by-any/', 'deep/', 'listed/', 'team-a/', 'top'],
    patterns: ['secret/data/+/config', 'secret/data/app-*'],
  })
  assert.deepEqual(reach('deep/').names, ['config', 'er/'])
  assert.deepEqual(reach('deep/er/'), { names: ['one'], patterns: [] })
  assert.deepEqual(reach('team-a/x/'), {
    names: [],
    patterns: ['secret/data/team-a/*', 'secret/metadata/team-a/*'],
  })
  assert.deepEqual(reach('app-1/'), { names: ['config'], patterns: ['secret/data/app-*'] })
  assert.deepEqual(reach('unknown/'), { names: ['config'], patterns: [] })
  const kv: ResultantAcl = {
    root: false,
    exact_paths: { 'kv/both': { capabilities: ['list', 'read'] }, 'kv/data': READS, 'kv/folder': LISTS },
    glob_paths: { 'kv/team/': READS },
  }
  const { names } = reachableIn(kv, { path: 'kv/', version: 1 }, '')
  assert.deepEqual(names, ['both', 'both/', 'data', 'folder/', 'team/'])
})

/** For the policy `own`. */
function rules(capabilities: string): string {
  return `path "sys/policies/acl/own" { capabilities = [${capabilities}] }`
}

/** A refusal with the path and the capability that is missing. */
async function expectNeed(page: Page, need: string): Promise<void> {
  await page.getByRole('main').getByText(`permission denied: this needs the capability ${need}`).first().waitFor()
}

test('a restricted token is led to its secrets, and reads what it lacks', { skip }, async (parent) => {
  const { call, open, tokenWith, url } = await secretsAgent(parent)
  for (const name of ['team-a/db', 'team-a/sub/api', 'other/db']) {
    await call('POST', `secret/data/${name}`, { data: { plain: 'the-value' } })
  }

  await parent.test('the folder of a token is found from the list of engines, by keys alone', async (t) => {
    const token = await tokenWith(
      'path "secret/data/team-a/*" { capabilities = ["read"] } path "secret/metadata/team-a/*" { capabilities = ["list", "read"] }',
    )
    const { page } = await open(t, '/secrets', token)
    await page.getByRole('link', { name: 'secret/' }).click()
    await page.getByText('Your token may not list this folder').waitFor()
    const names = page.getByRole('table', { name: 'Names' }).getByRole('link')
    assert.deepEqual(await names.allInnerTexts(), ['team-a/'])
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      await expectNoAxeViolations(page, `folder that is not listed, ${colorScheme}`)
    }
    await page.keyboard.press('o')
    await page.getByRole('dialog', { name: 'Open a path' }).waitFor()
    await page.keyboard.press('Escape')
    await page.keyboard.press('Home')
    await page.keyboard.press('Enter')
    await page.waitForURL(/team-a\/$/)
    await page.getByRole('link', { name: 'db' }).waitFor()
    assert.deepEqual(await names.allInnerTexts(), ['db', 'sub/'])
    assert.equal(await page.getByText('Your token may not list this folder').count(), 0)
    await page.getByRole('link', { name: 'db' }).click()
    await page.getByRole('button', { name: 'Show plain' }).click()
    await page.getByText('the-value').waitFor()
  })

  await parent.test('a token that may read one secret and list nothing reaches it', async (t) => {
    const { page } = await open(
      t,
      '/secrets/secret',
      await tokenWith('path "secret/data/team-a/sub/api" { capabilities = ["read"] }'),
    )
    for (const name of ['team-a/', 'sub/', 'api']) await page.getByRole('link', { name, exact: true }).last().click()
    await page.getByRole('button', { name: 'Show plain' }).click()
    await page.getByText('the-value').waitFor()
  })

  await parent.test('a token without rules for the engine reads what it lacks', async (t) => {
    const { page } = await open(
      t,
      '/secrets/secret',
      await tokenWith('path "secret/delete/x" { capabilities = ["update"] }'),
    )
    await expectNeed(page, '"list" on secret/metadata/')
    await page.getByRole('button', { name: 'Open a path' }).waitFor()
  })

  await parent.test('a refusal in the view of policies names the path and the capability', async (t) => {
    await call('PUT', 'sys/policies/acl/own', { policy: 'path "x" { capabilities = ["read"] }' })
    const { page } = await open(t, '/policies', await tokenWith('path "x" { capabilities = ["read"] }'))
    await expectNeed(page, '"list" on sys/policies/acl')
    await expectNoAxeViolations(page, 'policies without a right')
    await page.goto(`${url}/ui/policies/own`)
    await expectNeed(page, '"read" on sys/policies/acl/own')

    // The permission is lost while the policy is edited.
    await call('PUT', 'sys/policies/acl/writer', { policy: rules('"read", "update"') })
    const { client_token: token } = await call('POST', 'auth/token/create', { policies: ['writer'] })
    const writer = await open(t, '/policies/own', String(token))
    const field = writer.page.getByRole('textbox', { name: 'Document of own' })
    await writer.page.getByRole('button', { name: 'Save' }).waitFor()
    await field.fill('path "y" { capabilities = ["read"] }')
    await call('PUT', 'sys/policies/acl/writer', { policy: rules('"read"') })
    await writer.page.getByRole('button', { name: 'Save' }).click()
    await expectNeed(writer.page, '"update" on sys/policies/acl/own')
  })
})
