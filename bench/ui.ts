/**
 * The web interface in a real Chromium: the first load next to an empty page of a bare server, a written line to a painted one next to a
 * plain follower of the same lines, a tail at 20,000 lines/s, scrolling through 100,000 lines, and lists of 5,000 hosts and of 50,000
 * secrets, next to the frames of an idle page.
 */
import { whyNoChromium } from '../test/helpers/browser/chromium.ts'
import { startAgent } from './support/agent.ts'
import { BenchBrowser } from './support/browser.ts'
import { Helper } from './support/child.ts'
import { alone, type Options, type Row } from './support/figure.ts'
import { EmptyPage } from './support/ui/empty-page.ts'
import { firstLoad } from './support/ui/first-load.ts'
import { longLists } from './support/ui/lists.ts'
import { floodAndScroll, lineToPaint, type Writer } from './support/ui/tail.ts'

const REST_MS = 5000

export async function webInterface(options: Options): Promise<Row[]> {
  const missing = whyNoChromium()
  if (missing !== undefined) {
    process.stderr.write(`ui: ${missing}\n`)
    return []
  }
  const browser = await BenchBrowser.launch()
  const agent = await startAgent()
  const empty = await EmptyPage.start(browser)
  const writer: Writer = new Helper('writer')
  try {
    const loads = await firstLoad({ agent, browser, empty }, options)
    const rest = await empty.rest(REST_MS)
    const parts = { agent, browser, writer, rest }
    return [
      ...loads,
      ...(await lineToPaint(parts, options)),
      ...(await floodAndScroll(parts, options)),
      ...(await longLists({ browser, empty, rest }, options)),
    ]
  } finally {
    await browser.close()
    await Promise.all([agent.stop(), writer.stop(), empty.stop()])
  }
}

if (import.meta.main) await alone(webInterface)
