/**
 * Pictures of each view of the web interface, in light and dark, from a real agent with demo content.
 *
 *     npm run docs:screenshots                writes docs/images/ui-*.png
 *     npm run docs:screenshots -- log hosts   only these
 *     --to DIRECTORY --width PX               elsewhere, and as on a narrow screen
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import type { Browser } from 'playwright-core'
import { launchChromium } from '../test/helpers/browser/chromium.ts'
import { Demo } from './screenshots/demo.ts'
import { withPalette } from './screenshots/indexed-png.ts'

const IMAGES = resolve(import.meta.dirname, '../docs/images')
const STORED_TOKEN = 'outpost.token'
const HEIGHT_PX = 800
/** For logs to have lines, plots to have points, and responses to arrive. */
const FILL_MS = 8000
const SETTLE_MS = 2500

interface Picture {
  readonly name: string
  readonly path: string
  /** Keys to press, in turn, when the view is loaded. */
  readonly keys?: readonly string[]
  /** Milliseconds until it is worth a picture. */
  readonly settleMs?: number
}

async function picturesOf(demo: Demo): Promise<readonly Picture[]> {
  const { allocationOf, node } = await demo.places()
  const id = (task: string) => allocationOf.get(task) ?? ''
  const wall = ['web', 'api', 'report', 'import'].map((task) => `tail=${id(task)}/${task}`).join('&')
  return [
    { name: 'logs', path: '/logs' },
    { name: 'log', path: `/logs/${id('api')}/api` },
    { name: 'log-colors', path: `/logs/${id('web')}/web?time=1` },
    { name: 'log-job', path: '/logs/job/default/shop' },
    { name: 'log-ended', path: `/logs/${id('report')}/report`, keys: ['g', 'g', 'Enter'] },
    { name: 'wall', path: `/logs/wall?${wall}` },
    { name: 'hosts', path: '/hosts' },
    { name: 'host', path: `/hosts/${node}`, settleMs: 12_000 },
    { name: 'files', path: `/files/${id('web')}` },
    { name: 'file', path: `/files/${id('report')}/report/local/summary.json` },
    { name: 'secrets', path: '/secrets' },
    { name: 'folder', path: '/secrets/secret/shop/' },
    { name: 'secret', path: '/secrets/secret/shop/database' },
    { name: 'secret-edit', path: '/secrets/secret/shop/database?tab=edit' },
    { name: 'secret-versions', path: '/secrets/secret/shop/database?tab=versions' },
    { name: 'secret-compare', path: '/secrets/secret/shop/database?tab=compare' },
    { name: 'policies', path: '/policies' },
    { name: 'policy', path: '/policies/shop' },
    { name: 'tokens', path: '/access' },
    { name: 'leases', path: '/access/leases' },
    { name: 'identity', path: '/access/identity' },
    { name: 'auth-methods', path: '/access/auth' },
    { name: 'totp', path: '/totp' },
    { name: 'totp-key', path: '/totp/keys/totp/payments' },
    { name: 'cloud', path: '/cloud' },
    { name: 'cloud-roles', path: '/cloud/cloud/roles' },
    { name: 'dr', path: '/dr' },
    { name: 'seal', path: '/seal' },
    { name: 'status', path: '/status' },
    { name: 'keys', path: `/logs/${id('api')}/api`, keys: ['?'] },
    { name: 'palette', path: '/logs', keys: ['Control+k'] },
  ]
}

interface Options {
  readonly directory: string
  readonly width: number
}

async function take(browser: Browser, demo: Demo, picture: Picture, { directory, width }: Options): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    const viewport = { width, height: HEIGHT_PX }
    const context = await browser.newContext({ colorScheme, viewport, reducedMotion: 'reduce', locale: 'en-US' })
    const page = await context.newPage()
    page.on('pageerror', ({ message }) => process.stderr.write(`${picture.name}: ${message}\n`))
    await page.addInitScript(
      ([name = '', value = '']) => sessionStorage.setItem(name, value),
      [STORED_TOKEN, demo.token],
    )
    await page.goto(`${demo.url}/ui${picture.path}`)
    await page.locator('main :is(h1, .failure, .empty)').first().waitFor()
    await pause(picture.settleMs ?? SETTLE_MS)
    for (const key of picture.keys ?? []) await page.keyboard.press(key)
    if (picture.keys) await pause(500)
    const bytes = withPalette(await page.screenshot())
    writeFileSync(join(directory, `ui-${picture.name}-${colorScheme}.png`), bytes)
    process.stdout.write(`ui-${picture.name}-${colorScheme}.png ${Math.round(bytes.length / 1000)} kB\n`)
    await context.close()
  }
}

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { to: { type: 'string', default: IMAGES }, width: { type: 'string', default: '1280' } },
})
const demo = new Demo()
let browser: Browser | undefined
try {
  await demo.start()
  browser = await launchChromium()
  await pause(FILL_MS)
  mkdirSync(values.to, { recursive: true })
  const pictures = await picturesOf(demo)
  for (const picture of pictures) {
    if (positionals.length > 0 && !positionals.includes(picture.name)) continue
    await take(browser, demo, picture, { directory: values.to, width: Number(values.width) })
  }
} finally {
  await browser?.close()
  await demo.stop()
}
