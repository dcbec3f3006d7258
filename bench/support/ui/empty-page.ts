/** Peer: an empty page of a bare Node server, and what a browser does without any work. */
import type { CannedAnswer } from '../bare/http.ts'
import type { BenchBrowser, MeasuredFrames } from '../browser.ts'
import { Helper, type Said } from '../child.ts'

const LOADED = 'button'
const TEXT = '<!doctype html><html lang="en"><title>Empty</title><button>Empty</button></html>'
/** Reads the same bytes as the page under test, and shows one button then. */
const READING = `<!doctype html><html lang="en"><title>Empty</title><script>
fetch('/data').then((response) => response.json()).then((data) => {
  document.body.append(Object.assign(document.createElement('button'), { textContent: String(data) }))
})</script></html>`

export class EmptyPage {
  readonly #browser: BenchBrowser
  readonly #server: Helper<CannedAnswer, Said>
  readonly #port: number

  private constructor(browser: BenchBrowser, server: Helper<CannedAnswer, Said>, port: number) {
    this.#browser = browser
    this.#server = server
    this.#port = port
  }

  static async start(browser: BenchBrowser): Promise<EmptyPage> {
    const server = new Helper<CannedAnswer, Said>('bare/http')
    const { port } = await server.next()
    const page = new EmptyPage(browser, server, port)
    await page.#serve('/', 'text/html', Buffer.from(TEXT))
    await page.#serve('/reading', 'text/html', Buffer.from(READING))
    return page
  }

  async #serve(path: string, type: string, body: Buffer): Promise<void> {
    this.#server.send({ path, headers: ['Content-Type', type], base64: body.toString('base64') })
    await this.#server.next()
  }

  /** From the start of a navigation with an empty cache until the button was painted. */
  async loadMs(): Promise<number> {
    return this.#load('/')
  }

  /** The same for a page that also fetches and parses these bytes. */
  async readMs(json: Buffer): Promise<number> {
    await this.#serve('/data', 'application/json', json)
    return this.#load('/reading')
  }

  async #load(path: string): Promise<number> {
    const page = await this.#browser.page({ loaded: LOADED })
    const loadedMs = await page.open(`http://127.0.0.1:${this.#port}${path}`)
    await page.close()
    return loadedMs
  }

  /** Frames and memory of an idle page. */
  async rest(durationMs: number): Promise<MeasuredFrames & { readonly heapMiB: number }> {
    const page = await this.#browser.page({ loaded: LOADED })
    await page.open(`http://127.0.0.1:${this.#port}/`)
    const end = await page.watchFrames(this.#browser)
    await new Promise((resolve) => setTimeout(resolve, durationMs))
    const frames = await end()
    const heapMiB = await page.heapMiB()
    await page.close()
    return { ...frames, heapMiB }
  }

  stop(): Promise<void> {
    return this.#server.stop()
  }
}
