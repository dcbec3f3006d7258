/** States of views that axe finds wrong with certain data only: ended tasks, equal names, large content, colours of logs. */
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { PNG } from 'pngjs'
import { makeAllocation, ALLOC } from '../helpers/allocation.ts'
import { whyNoChromium } from '../helpers/browser/chromium.ts'
import { keyboardWorld } from '../helpers/browser/keyboard-world.ts'
import { changeAnswers, expectNoAxeViolations } from '../helpers/browser/page.ts'
import { contrast, numberColors } from '../../ui/views/logs/model/number-colors.ts'

const skip = whyNoChromium() ?? false
const ENDED = ALLOC.replace(/.$/, '2')
const ESC = '\u001b'

/** Every tenth colour of the table, and some of 24 bits, as text and as background. */
const CODES = [
  ...Array.from({ length: 24 }, (_, at) => `38;5;${16 + at * 10}`),
  '38;2;255;255;0',
  '38;2;120;200;255',
  '48;2;20;20;20',
  '48;5;226',
  '38;5;250;48;5;255',
  '31;48;5;236',
  '38;5;220;41',
]
const COLORED = CODES.map((codes) => `${ESC}[${codes}mcolor ${codes}${ESC}[0m`)

/** Of a value of `rgb()`. */
function partsOf(text: string): [number, number, number] {
  const [red = 0, green = 0, blue = 0] = (text.match(/\d+/g) ?? []).map(Number)
  return [red, green, blue]
}

test('the colours of a log can be read on each background', () => {
  for (const color of ['rgb(255 255 0)', 'rgb(0 0 0)', 'rgb(95 135 255)', 'rgb(238 238 238)', 'rgb(8 8 8)']) {
    const { dark, light } = numberColors(color, undefined)
    assert.ok(contrast(partsOf(light), [255, 255, 255]) >= 4.5, `${color} in light: ${light}`)
    assert.ok(contrast(partsOf(dark), [0x16, 0x19, 0x1f]) >= 4.5, `${color} in dark: ${dark}`)
    for (const background of ['rgb(0 0 0)', 'rgb(128 128 128)', 'rgb(255 255 0)']) {
      const shown = numberColors(color, background).light
      assert.ok(contrast(partsOf(shown), partsOf(background)) >= 4.5, `${color} on ${background}: ${shown}`)
    }
  }
  assert.equal(numberColors('rgb(0 0 0)', undefined).light, 'rgb(0 0 0)', 'a readable colour stays')
})

test('a log with colours, and one of an ended task, have no accessibility violations', { skip }, async (t) => {
  const { log, open } = await keyboardWorld(t)
  writeFileSync(log, `${COLORED.join('\n')}\n`)
  const directory = dirname(dirname(dirname(dirname(log))))
  makeAllocation(directory, ENDED, {
    Name: 'shop.web[0]',
    ClientStatus: 'failed',
    Tasks: { web: { State: 'dead', Failed: true, FinishedAt: new Date().toISOString() } },
  })
  const page = await open(`/logs/${ALLOC}/web`)
  await page.getByText('color 38;5;220;41').waitFor()
  await expectNoAxeViolations(page, 'colours, light')
  await page.emulateMedia({ colorScheme: 'dark' })
  await expectNoAxeViolations(page, 'colours, dark', ['color-contrast'])
  await page.goto(page.url().replace(ALLOC, ENDED))
  await page.locator('.log-target-state a').waitFor()
  // axe sees no text beside it, because a time is a button.
  const decoration = await page.evaluate(
    'getComputedStyle(document.querySelector(".log-target-state a")).textDecorationLine',
  )
  assert.equal(decoration, 'underline', 'the link beside the state')
  await expectNoAxeViolations(page, 'a failed task')

  // As if the two were on different hosts.
  await changeAnswers(page, /v1\/allocation\//, (json, request) => ({
    ...(json as object),
    Name: 'shop.web[0]',
    NodeName: request.url().includes(ENDED) ? 'host-2' : 'host-1',
  }))
  await page.goto(page.url().replace(/logs.*/, `logs/wall?tail=${ALLOC}/web&tail=${ENDED}/web`))
  for (const host of ['host-1', 'host-2']) await page.getByRole('region', { name: `on ${host}` }).waitFor()
  await expectNoAxeViolations(page, 'a wall with equal tasks')
})

test('content that scrolls has the focus and a name, and an unknown view has a heading', { skip }, async (t) => {
  const { call, log, open } = await keyboardWorld(t)
  const local = join(dirname(dirname(dirname(log))), 'web/local')
  mkdirSync(local, { recursive: true })
  writeFileSync(join(local, 'tall.png'), PNG.sync.write(new PNG({ width: 20, height: 3000 })))
  await call('POST', 'secret/data/app/long', { data: { certificate: 'line of a certificate\n'.repeat(400) } })
  const page = await open(`/files/${ALLOC}/web/local/tall.png`)
  await page.getByText('20 × 3000').waitFor()
  await expectNoAxeViolations(page, 'image')
  await page.goto(page.url().replace(/files.*/, 'secrets/secret/app/long'))
  await page.getByRole('button', { name: 'Show as JSON' }).click()
  await page.locator('.secret-json').waitFor()
  await expectNoAxeViolations(page, 'secret as JSON')
  await page.setViewportSize({ width: 360, height: 700 })
  await page.goto(page.url().replace(/secrets.*/, 'nothing/here'))
  await page.getByText('There is no view at /nothing/here.').waitFor()
  await expectNoAxeViolations(page, 'unknown view')
  const box = await page.locator('.state').boundingBox()
  assert.ok(box !== null && box.x >= 8 && box.x + box.width <= 352, 'its box has a margin')
})
