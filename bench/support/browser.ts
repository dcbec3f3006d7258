/** Pages in a real Chromium that measure themselves: `page/probe.ts` runs in each of them. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { transformSync } from 'esbuild'
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright-core'
import { launchChromium } from '../../test/helpers/browser/chromium.ts'
import { cpuSeconds, nowMs } from './measure.ts'

/** Where the interface keeps the token of a tab. */
const STORED_TOKEN = 'outpost.token'
const DEADLINE_MS = 120_000
const VIEWPORT = { width: 1280, height: 800 }
const MiB = 1 << 20

export interface Frames {
  readonly intervals: readonly number[]
  readonly work: readonly number[]
}

/** Frames, and the CPU time of the page's process in the same time. */
export interface MeasuredFrames extends Frames {
  readonly cpuMsPerFrame: number
}

export interface Transfer {
  readonly path: string
  /** With the head of the response, as compressed. */
  readonly bytes: number
}

export interface PageOptions {
  readonly token?: string
  /** Something of the loaded page: `loadedMs` resolves when it is painted. */
  readonly loaded?: string
}

function probeSource(): string {
  return transformSync(readFileSync(join(import.meta.dirname, 'page/probe.ts'), 'utf8'), {
    loader: 'ts',
    format: 'iife',
  }).code
}

export class BenchBrowser {
  readonly #browser: Browser

  private constructor(browser: Browser) {
    this.#browser = browser
  }

  static async launch(): Promise<BenchBrowser> {
    return new BenchBrowser(await launchChromium())
  }

  get version(): string {
    return this.#browser.version()
  }

  /** Starts to measure the CPU time of the pages that are open, with all threads of their processes. */
  async watchCpu(): Promise<{ readonly seconds: () => number }> {
    const session = await this.#browser.newBrowserCDPSession()
    const { processInfo } = await session.send('SystemInfo.getProcessInfo')
    await session.detach()
    const pids = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id)
    const before = cpuSeconds(pids)
    return { seconds: () => cpuSeconds(pids) - before }
  }

  /** An empty page whose cache and storage are its own. */
  async page({ loaded, token }: PageOptions = {}): Promise<BenchPage> {
    const context = await this.#browser.newContext({ viewport: VIEWPORT })
    const page = await context.newPage()
    page.setDefaultTimeout(DEADLINE_MS)
    await page.addInitScript(probeSource())
    if (loaded !== undefined) await page.addInitScript(`bench.loaded = bench.painted(${JSON.stringify(loaded)})`)
    if (token !== undefined) {
      const [name, value] = [JSON.stringify(STORED_TOKEN), JSON.stringify(token)]
      await page.addInitScript(`sessionStorage.setItem(${name}, ${value})`)
    }
    const session = await context.newCDPSession(page)
    return BenchPage.of(context, page, session)
  }

  close(): Promise<void> {
    return this.#browser.close()
  }
}

export class BenchPage {
  readonly page: Page
  readonly transfers: Transfer[] = []
  /** Errors of the page's scripts. */
  readonly errors: string[] = []
  readonly #context: BrowserContext
  readonly #session: CDPSession

  private constructor(context: BrowserContext, page: Page, session: CDPSession) {
    this.page = page
    this.#context = context
    this.#session = session
    page.on('pageerror', ({ message }) => this.errors.push(message))
    const paths = new Map<string, string>()
    session.on('Network.requestWillBeSent', ({ request, requestId }) => {
      paths.set(requestId, new URL(request.url).pathname)
    })
    session.on('Network.loadingFinished', ({ encodedDataLength, requestId }) => {
      this.transfers.push({ path: paths.get(requestId) ?? '', bytes: encodedDataLength })
    })
  }

  static async of(context: BrowserContext, page: Page, session: CDPSession): Promise<BenchPage> {
    const opened = new BenchPage(context, page, session)
    await session.send('Network.enable')
    await session.send('Performance.enable')
    return opened
  }

  /** From the start of the navigation until `loaded` was painted. */
  async open(url: string): Promise<number> {
    await this.page.goto(url, { waitUntil: 'commit' })
    return Number(await this.page.evaluate('bench.loaded ?? 0'))
  }

  evaluate(script: string): Promise<unknown> {
    return this.page.evaluate(script)
  }

  /** Frames of a script that returns them. */
  async frames(script: string, browser: BenchBrowser): Promise<MeasuredFrames> {
    const cpu = await browser.watchCpu()
    const frames = await this.page.evaluate<Frames>(script)
    return { ...frames, cpuMsPerFrame: (cpu.seconds() * 1000) / frames.intervals.length }
  }

  /** Frames from now on, until the returned function is called. */
  async watchFrames(browser: BenchBrowser): Promise<() => Promise<MeasuredFrames>> {
    const cpu = await browser.watchCpu()
    await this.page.evaluate('bench.startFrames()')
    return async () => {
      const frames = await this.page.evaluate<Frames>('bench.endFrames()')
      return { ...frames, cpuMsPerFrame: (cpu.seconds() * 1000) / frames.intervals.length }
    }
  }

  async numbers(script: string): Promise<readonly number[]> {
    return this.page.evaluate<readonly number[]>(script)
  }

  /** The text of the first element that matches; empty if none does. */
  async text(selector: string): Promise<string> {
    return (await this.texts(selector))[0] ?? ''
  }

  async texts(selector: string): Promise<readonly string[]> {
    const script = `[...document.querySelectorAll(${JSON.stringify(selector)})].map((each) => each.textContent)`
    return this.page.evaluate<readonly string[]>(script)
  }

  /** What the clock of this process shows when `performance.now()` of the page is 0. Both are the kernel's monotonic clock. */
  async clockOffsetMs(): Promise<number> {
    let best = { widthMs: Infinity, offsetMs: 0 }
    for (let tries = 0; tries < 20; tries++) {
      const beforeMs = nowMs()
      const pageMs = Number(await this.page.evaluate('performance.now()'))
      const afterMs = nowMs()
      const widthMs = afterMs - beforeMs
      if (widthMs < best.widthMs) best = { widthMs, offsetMs: (beforeMs + afterMs) / 2 - pageMs }
    }
    const exactMs = (await this.#metric('NavigationStart')) * 1000
    // The browser's own value has no error by the connection, and must be within that error.
    if (Math.abs(exactMs - best.offsetMs) > best.widthMs / 2 + 1) {
      throw new Error(`the clocks of browser and bench differ: ${exactMs - best.offsetMs} ms`)
    }
    return exactMs
  }

  async #metric(name: string): Promise<number> {
    const { metrics } = await this.#session.send('Performance.getMetrics')
    return metrics.find((metric) => metric.name === name)?.value ?? Number.NaN
  }

  /** Memory of the page: its scripts, its document and its buffers, with garbage. */
  async heapMiB(): Promise<number> {
    // The description of the protocol has fewer fields than Chromium sends.
    const usage = await this.#session.send('Runtime.getHeapUsage')
    return Object.entries(usage).reduce((sum, [name, bytes]) => (name === 'totalSize' ? sum : sum + bytes), 0) / MiB
  }

  async collectGarbage(): Promise<void> {
    await this.#session.send('HeapProfiler.collectGarbage')
  }

  /** Seconds in which the page's main thread worked. */
  busySeconds(): Promise<number> {
    return this.#metric('TaskDuration')
  }

  close(): Promise<void> {
    return this.#context.close()
  }
}
