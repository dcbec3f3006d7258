/**
 * One agent for the tests of keys and focus: an allocation with a log, secrets, users with and without a second factor, roles and codes. It
 * runs until the tests of the file have ended.
 */
import { join } from 'node:path'
import { after, type TestContext } from 'node:test'
import type { Page } from 'playwright-core'
import { startAgent, workDirectory } from '../agent-process.ts'
import { ALLOC, makeAllocation } from '../allocation.ts'
import { eventually } from '../eventually.ts'
import { openUi, type UiOptions } from './page.ts'
import { clientOf } from './secrets-page.ts'

export const PASSWORD = 'correct horse battery'
/** As on a host with a log of 200 lines, ten of which are errors. */
export const LOG_LINES = Array.from({ length: 200 }, (_, at) => (at % 20 === 10 ? `ERROR in ${at}` : `line ${at}`))

const atEnd: (() => unknown)[] = []
// While the file is loaded: in a test, it would stop the agent after that test.
after(async () => {
  for (const end of atEnd.splice(0)) await end()
})

let shared: ReturnType<typeof startWorld> | undefined

async function startWorld() {
  const t = { after: (end: () => unknown) => void atEnd.push(end) }
  const directory = workDirectory(t)
  makeAllocation(join(directory, 'alloc'), ALLOC, { Name: 'shop.web[0]' })
  const agent = await startAgent(t, ['-dev', '-dev-no-demo', '-http-port', '0', `-data-dir=${directory}`])
  const client = clientOf(agent.url, /Token: (\S+)/.exec(agent.stdout())?.[1] ?? '')
  const { call } = client
  for (const type of ['userpass', 'approle']) await call('POST', `sys/auth/${type}`, { type })
  await call('POST', 'sys/mounts/totp', { type: 'totp' })
  await call('POST', 'secret/data/app/db', { data: { password: 'one' } })
  const policy = 'path "sys/mfa/method/totp*" { capabilities = ["read", "list", "update"] }'
  await call('PUT', 'sys/policies/acl/person', { policy })
  for (const name of ['alice', 'bob']) {
    await call('PUT', `auth/userpass/users/${name}`, { password: PASSWORD, token_policies: 'person' })
  }
  // Alice must send a code, of a method with her secret.
  await call('PUT', 'sys/mfa/method/totp/phone', { issuer: 'Example', max_validation_attempts: 9 })
  const { id } = await call('GET', 'sys/mfa/method/totp/phone')
  const { entity_id } = await call('PUT', 'auth/userpass/login/alice', { password: PASSWORD })
  const made = await call('PUT', 'sys/mfa/method/totp/phone/admin-generate', { entity_id })
  await call('PUT', 'identity/mfa/login-enforcement/people', { mfa_method_ids: id, identity_entity_ids: entity_id })
  return { ...client, log: join(directory, 'alloc', ALLOC, 'alloc/logs/web.stdout.0'), codeUrl: String(made['url']) }
}

export async function keyboardWorld(t: TestContext) {
  shared ??= startWorld()
  const world = await shared
  /** Opens a view, with the root token unless `options` has another one. */
  const open = async (path: string, options: Partial<UiOptions> = {}): Promise<Page> =>
    (await openUi(t, { url: world.url, token: world.token, path, ...options })).page
  const openWithoutToken = async (path: string): Promise<Page> => (await openUi(t, { url: world.url, path })).page
  return { ...world, open, openWithoutToken }
}

/** Presses a key until its dialog is open: it has no effect until the view has loaded what the token may do. */
export async function pressForDialog(page: Page, key: string, title: string) {
  const dialog = page.getByRole('dialog', { name: title })
  await eventually(async () => {
    if ((await dialog.count()) === 0) await page.keyboard.press(key)
    return dialog.isVisible()
  }, `${key} opens "${title}"`)
  return dialog
}
