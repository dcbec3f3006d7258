/** An agent with a policy for each token, and pages of its web interface that record what a browser refuses. */
import { createHash } from 'node:crypto'
import { realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { agentHere } from '../helpers/agent-here.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

export const OPS = 'token-of-the-operator'
export const READER = 'token-of-a-reader'

const POLICIES = {
  [OPS]: `node { policy = "write" }
agent { policy = "write" }
namespace "*" { policy = "write" }`,
  [READER]: `node { policy = "read" }
namespace "default" { capabilities = ["list-jobs", "read-job"] }`,
}

export interface HostAgent {
  readonly url: string
  readonly allocDir: string
  /** Sends a request with the token of the operator. */
  ask(path: string, init?: RequestInit): Promise<Response>
}

const tokenBlock = ([token, policy]: readonly [string, string], at: number) =>
  `token "t${at}" {\n sha256 = "${createHash('sha256').update(token).digest('hex')}"\n policy = <<-EOT\n${policy}\nEOT\n}`

export async function startHost(
  t: Pick<TestContext, 'after'>,
  prepare: (allocDir: string) => void,
): Promise<HostAgent> {
  const directory = realpathSync(temporaryDirectory(t))
  const file = join(directory, 'agent.hcl')
  const allocDir = join(directory, 'data/alloc')
  prepare(allocDir)
  const tokens = Object.entries(POLICIES).map(tokenBlock).join('\n')
  const meta = 'meta {\n rack = "r1"\n "weird key" = "<img src=x onerror=alert(1)>"\n }'
  writeFileSync(
    file,
    `name = "web-host"\ndata_dir = "${directory}/data"\nports { http = 0 }\nclient {\n enabled = true\n ${meta}\n}\nacl {\n enabled = true\n${tokens}\n}\n`,
  )
  const { url } = await agentHere(t, ['-config', file, '-log-level', 'warn'])
  return {
    url,
    allocDir,
    ask: (path, init = {}) => fetch(url + path, { ...init, headers: { Authorization: `Bearer ${OPS}` } }),
  }
}

export interface UiPage {
  readonly page: Page
  /** Errors, refused resources and dialogs since the page was opened. */
  readonly problems: readonly string[]
  open(path: string): Promise<void>
}

export async function uiPage(
  t: Pick<TestContext, 'after'>,
  browser: Browser,
  url: string,
  token: string,
): Promise<UiPage> {
  // uPlot formats numbers in the language of the browser, and that of a headless one may be malformed.
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-US' })
  t.after(() => context.close())
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  const problems: string[] = []
  page.on('pageerror', (error) => problems.push(error.message))
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  await page.exposeFunction('reportViolation', (text: string) => problems.push(text))
  // Text, because the program of the tests has no types of a browser.
  await page.addInitScript(`
    sessionStorage.setItem('outpost.token', ${JSON.stringify(token)})
    document.addEventListener('securitypolicyviolation', (event) =>
      window.reportViolation(event.violatedDirective + ' ' + event.blockedURI + ' ' + event.sample))
  `)
  return { page, problems, open: async (path) => void (await page.goto(`${url}/ui${path}`)) }
}
