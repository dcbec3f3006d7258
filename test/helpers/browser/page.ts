/**
 * Pages of the web interface in a real Chromium. One browser serves a test file; each page has a context of its own, so no storage is shared.
 *
 * A page records what must never occur: errors, violations of the content security policy, and requests to other origins. `openUi` checks
 * at the end of the test that there were none. The policy stays in effect; what the tests inject is evaluated through the debugger.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { after, type TestContext } from 'node:test'
import type { Browser, Page, Request } from 'playwright-core'
import { eventually } from '../eventually.ts'
import { launchChromium } from './chromium.ts'

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')
const STORED_TOKEN = 'outpost.token'
const DEADLINE_MS = 60_000

let browser: Promise<Browser> | undefined
// While the file is loaded: in a test, it would close the browser after that test.
after(async () => (await browser)?.close())

/** The browser of this test file; closed after its last test. */
export function openBrowser(): Promise<Browser> {
  browser ??= launchChromium()
  return browser
}

export interface UiOptions {
  /** Address of the agent. */
  readonly url: string
  /** Path below `/ui`. */
  readonly path?: string
  readonly token?: string
  readonly colorScheme?: 'light' | 'dark'
  readonly viewport?: { readonly width: number; readonly height: number }
  readonly reducedMotion?: 'reduce'
  /** Messages of the console that the test expects, such as those of refused requests. */
  readonly expected?: RegExp
}

export interface UiPage {
  readonly page: Page
  /** Errors of scripts, violations of the policy and unexpected messages. */
  readonly problems: readonly string[]
}

/** The browser reports each response with an error status; the interface handles them. */
const REFUSED =
  /^Failed to load resource: (the server responded with a status of|net::ERR_(CONNECTION|INCOMPLETE|EMPTY|ABORTED))/

/** Opens a view, and checks after the test that the page had no problem. */
export async function openUi(t: TestContext, options: UiOptions): Promise<UiPage> {
  const {
    colorScheme = 'light',
    path = '/',
    reducedMotion,
    token,
    url,
    viewport = { width: 1280, height: 800 },
  } = options
  const context = await (await openBrowser()).newContext({
    colorScheme,
    viewport,
    ...(reducedMotion && { reducedMotion }),
    ignoreHTTPSErrors: true,
    // uPlot formats numbers in the language of the browser, and that of a headless one in the POSIX locale is malformed.
    locale: 'en-US',
  })
  const page = await context.newPage()
  page.setDefaultTimeout(DEADLINE_MS)
  const problems: string[] = []
  page.on('pageerror', (error) => problems.push(`error: ${error.message}`))
  page.on('console', (message) => {
    const text = message.text()
    if (message.type() !== 'error' && message.type() !== 'warning') return
    if (!REFUSED.test(text) && !options.expected?.test(text)) problems.push(`console: ${text}`)
  })
  page.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).origin !== new URL(url).origin) {
      problems.push(`request to another origin: ${request.url()}`)
    }
  })
  if (token !== undefined) {
    await page.addInitScript(([name = '', value = '']) => sessionStorage.setItem(name, value), [STORED_TOKEN, token])
  }
  t.after(async () => {
    await context.close()
    assert.deepEqual(problems, [], 'the page had problems')
  })
  await page.goto(`${url}/ui${path}`)
  return { page, problems }
}

/**
 * Replaces the JSON of the answers to these requests by the result of `change`; other answers stay. A request that is in progress when the
 * test ends is aborted: its server may have stopped.
 */
export async function changeAnswers(
  page: Page,
  pattern: RegExp,
  change: (json: unknown, request: Request) => unknown,
): Promise<void> {
  await page.route(pattern, async (route) => {
    try {
      const response = await route.fetch()
      const isJson = (response.headers()['content-type'] ?? '').includes('json')
      const text = await response.text()
      await route.fulfill({
        response,
        body: isJson ? JSON.stringify(change(JSON.parse(text), route.request())) : text,
      })
    } catch {
      await route.abort().catch(() => undefined)
    }
  })
}

interface AxeViolation {
  readonly id: string
  readonly help: string
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[]
}

/** Fails with the rule and the element for each violation that axe finds in the page, of all rules or of these. */
export async function expectNoAxeViolations(page: Page, what: string, rules?: readonly string[]): Promise<void> {
  // Through the debugger, which the policy does not concern.
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(readFileSync(AXE, 'utf8'))
  const options = JSON.stringify({ resultTypes: ['violations'], runOnly: rules })
  const violations = await page.evaluate<readonly AxeViolation[]>(
    `axe.run(document, ${options}).then(({ violations }) => violations)`,
  )
  const texts = violations.flatMap(({ help, id, nodes }) =>
    nodes.map(({ failureSummary, html }) => `${what}: ${id}: ${help}: ${html}\n${failureSummary ?? ''}`),
  )
  assert.deepEqual(texts, [])
}

/** Describes the element with the focus by its tag and its label or text. A text, because it runs in the browser. */
const FOCUSED = `(() => {
  const element = document.activeElement
  const name = element.labels?.[0]?.textContent || element.getAttribute('aria-label') || element.textContent
  return element === document.body ? 'BODY' : element.tagName + ' ' + name.trim()
})()`

/** Waits until the element with the focus is this one, such as `INPUT Name`. */
export async function expectFocus(page: Page, expected: string | RegExp): Promise<void> {
  let focused = ''
  const isExpected = async () => {
    focused = await page.evaluate<string>(FOCUSED)
    return typeof expected === 'string' ? focused === expected : expected.test(focused)
  }
  await eventually(isExpected, 'the focus is there', 3000).catch(() =>
    assert.fail(`the focus is on "${focused}", not on "${String(expected)}"`),
  )
}
