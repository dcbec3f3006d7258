/** The list of logs, the tail of a job and the wall in Chromium, against a process that is agent and server. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, type TestContext, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { writeManifest } from '../../host/allocations/host-fixture.ts'
import { launchChromium, whyNoChromium } from '../../helpers/browser/chromium.ts'
import { eventually } from '../../helpers/eventually.ts'
import { OUTPOST } from '../../helpers/program.ts'
import { quietPort } from '../../helpers/quiet-port.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const skip = whyNoChromium()
const HOSTILE = '<img src=x onerror="window.hacked=1">'
let browser: Browser | undefined

before(async () => {
  if (skip === undefined) browser = await launchChromium()
})
after(() => browser?.close())

function idOf(index: number): string {
  return `6f1c0b9e-2f0a-4a51-9d0c-${String(index).padStart(12, '0')}`
}

/** An agent and server on one port that is killed and started again. */
class DevAgent {
  readonly url: string
  readonly #directory: string
  readonly #port: number
  #child: ChildProcess | undefined

  private constructor(directory: string, port: number) {
    this.#directory = directory
    this.#port = port
    this.url = `http://127.0.0.1:${port}`
  }

  static async start(t: TestContext): Promise<DevAgent> {
    const agent = new DevAgent(realpathSync(temporaryDirectory(t)), await quietPort())
    t.after(() => agent.kill())
    await agent.start()
    return agent
  }

  async start(): Promise<void> {
    const options = ['-dev', '-dev-no-demo', '-cluster-port', '0', '-log-level', 'warn']
    const args = ['agent', ...options, '-http-port', String(this.#port), '-data-dir', this.#directory]
    const child = spawn(OUTPOST, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    this.#child = child
    let output = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
    await eventually(() => output.includes('agent started'), 'the agent has started')
  }

  async kill(): Promise<void> {
    const child = this.#child
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }

  log(index: number, file: string): string {
    return join(this.#directory, 'alloc', idOf(index), 'alloc/logs', file)
  }

  allocation(index: number, manifest: Readonly<Record<string, unknown>>, task: Readonly<Record<string, unknown>> = {}) {
    const state = { State: 'running', StartedAt: new Date().toISOString(), FinishedAt: null, ...task }
    writeManifest(join(this.#directory, 'alloc'), idOf(index), {
      Name: `web.${index}`,
      Namespace: 'default',
      JobID: 'web',
      ClientStatus: 'running',
      Tasks: { web: state },
      ...manifest,
    })
    writeFileSync(this.log(index, 'web.stdout.0'), '')
  }
}

async function openPage(agent: DevAgent, path: string): Promise<Page> {
  if (!browser) throw new Error('no browser')
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } })
  page.on('pageerror', (error) => {
    throw error
  })
  await page.goto(`${agent.url}/ui${path}`)
  return page
}

test('the list leads to the line where a job failed, with three clicks', { skip, timeout: 60_000 }, async (t) => {
  const agent = await DevAgent.start(t)
  agent.allocation(1, { Name: HOSTILE, JobID: HOSTILE })
  const failed = { State: 'dead', Failed: true, FinishedAt: new Date(Date.now() - 3_600_000).toISOString() }
  agent.allocation(2, { JobID: 'import', ClientStatus: 'failed' }, failed)
  const lines = Array.from({ length: 3000 }, (_, at) => `row ${at} ${at === 2200 ? 'ERROR disk full' : 'imported'}`)
  writeFileSync(agent.log(2, 'web.stdout.0'), `${lines.join('\n')}\n`)
  const page = await openPage(agent, '/logs')
  await page.getByRole('button', { name: 'Failed 1' }).click()
  await page.getByRole('link', { name: 'web', exact: true }).click()
  await page.waitForSelector('text=this is the end of the log')
  assert.equal(await page.locator('.badge:text-is("Ended")').count(), 1)
  await page.getByRole('button', { name: 'Errors' }).click()
  await page.waitForSelector('text=1 of 1')
  assert.equal(await page.locator('.log-selected .log-text').innerText(), 'row 2200 ERROR disk full')
  // Names are text.
  await page.goto(`${agent.url}/ui/logs?kind=jobs`)
  await page.getByRole('link', { name: HOSTILE }).click()
  await page.waitForSelector(`h1:text-is('${HOSTILE}')`)
  assert.equal(await page.evaluate("'hacked' in window"), false)
  await page.close()
})

test('the tail of a job shows each line of each allocation once, over a restart', {
  skip,
  timeout: 90_000,
}, async (t) => {
  const agent = await DevAgent.start(t)
  for (const index of [1, 2, 3]) agent.allocation(index, {})
  const page = await openPage(agent, '/logs/job/default/web')
  await page.waitForSelector('text=Live')
  let written = 0
  const writer = setInterval(() => {
    for (const index of [1, 2, 3]) appendFileSync(agent.log(index, 'web.stdout.0'), `line ${written}\n`)
    written++
  }, 10)
  t.after(() => clearInterval(writer))
  await new Promise((resolve) => setTimeout(resolve, 700))
  await agent.kill()
  await page.waitForSelector('text=Disconnected, retrying')
  await agent.start()
  await page.waitForSelector('text=Live')
  await new Promise((resolve) => setTimeout(resolve, 300))
  clearInterval(writer)
  const expected = (written * 3).toLocaleString('en')
  await page.waitForSelector(`text="${expected} lines"`)
  // One that is repeated would match more than once for each allocation.
  for (const line of [0, Math.floor(written / 2), written - 1]) {
    await page.getByLabel('Find in the lines').fill(`line ${line}$`)
    await page.getByLabel('Regular expression').click()
    await page.waitForSelector('text="3 matches"')
    await page.getByLabel('Regular expression').click()
  }
  assert.deepEqual(
    new Set(await page.locator('.log-source').allInnerTexts()),
    new Set(['web.1 web ', 'web.2 web ', 'web.3 web ']),
  )
  await page.close()
})

test('nine tails are live on the wall, and other requests of the page are answered', {
  skip,
  timeout: 60_000,
}, async (t) => {
  const agent = await DevAgent.start(t)
  const indexes = [1, 2, 3, 4, 5, 6, 7, 8]
  for (const index of indexes) agent.allocation(index, {})
  const tails = [...indexes.map((index) => `tail=${idOf(index)}/web`), 'tail=job/default/web']
  const page = await openPage(agent, `/logs/wall?${tails.join('&')}`)
  await eventually(async () => (await page.locator('.badge:text-is("Live")').count()) === 9, 'all tails are live')
  for (const index of indexes) appendFileSync(agent.log(index, 'web.stdout.0'), `from ${index}\n`)
  for (const [at, index] of indexes.entries()) {
    await page.locator('.wall-cell').nth(at).locator(`text="from ${index}"`).waitFor()
  }
  await eventually(
    async () => (await page.locator('.wall-cell').nth(8).locator('.log-row').count()) === 8,
    'the job has all',
  )
  // Resumed after a restart as well.
  await agent.kill()
  await eventually(async () => (await page.locator('.badge-bad').count()) === 9, 'all tails are disconnected')
  await agent.start()
  await eventually(async () => (await page.locator('.badge:text-is("Live")').count()) === 9, 'all tails are live again')
  for (const index of indexes) appendFileSync(agent.log(index, 'web.stdout.0'), `again ${index}\n`)
  for (const index of indexes) await page.locator('.wall-cell').nth(8).locator(`text="again ${index}"`).waitFor()
  assert.equal(await page.locator('.wall-cell').nth(8).locator('text=/^from/').count(), 8)
  await page.getByRole('button', { name: 'Max web · web.3' }).click()
  assert.equal(await page.locator('.wall-cell').count(), 1)
  await page.keyboard.press('Escape')
  await page.getByRole('button', { name: 'Remove web · web.1' }).click()
  assert.equal(await page.locator('.wall-cell').count(), 8)
  await page.getByRole('button', { name: 'Add a tail' }).click()
  await page.locator('.wall-offered button', { hasText: 'web.1' }).first().click()
  assert.equal(await page.locator('.wall-cell').count(), 9)
  await page.close()
})
