/** The views of files in a browser, against an agent. */
import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { PNG } from 'pngjs'
import { ALLOC, makeAllocation, SECRET } from '../../helpers/allocation.ts'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { eventually } from '../../helpers/eventually.ts'
import { expectNoAxeViolations, openUi } from '../../helpers/browser/page.ts'
import { OPS, READER, startHost } from '../../ui/hosts-fixture.ts'

const skip = whyNoChromium()
const HOSTILE_NAMES = [
  '<img src=x onerror=alert(1)>',
  'quote"\'&amp;.txt',
  '%2e%2e%2fescape?a=b#c',
  'line\nfeed',
  'right\u202eexe.txt',
  ' spaces ',
  '..hidden',
  'javascript:alert(1)',
  'größe ✓ 👩‍💻',
  'back\\slash',
]
const HOSTILE_TEXT = '<script>alert(1)</script><svg onload=alert(1)>'

async function startWorld(t: TestContext) {
  const agent = await startHost(t, (allocDir) => {
    const directory = makeAllocation(allocDir, ALLOC, { Name: 'web.api[0]', JobID: 'web' })
    const data = join(directory, 'alloc/data')
    mkdirSync(join(data, 'names'))
    for (const name of HOSTILE_NAMES) writeFileSync(join(data, 'names', name), HOSTILE_TEXT)
    writeFileSync(join(data, 'long.txt'), Array.from({ length: 40_000 }, (_, at) => `line ${at}\n`).join(''))
    writeFileSync(join(data, 'page.svg'), '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')
    writeFileSync(join(data, 'picture'), PNG.sync.write(new PNG({ width: 7, height: 5 })))
    writeFileSync(join(data, 'broken.png'), Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1, 2, 3))
    writeFileSync(join(data, 'bytes'), Buffer.from(Array.from({ length: 200_000 }, (_, at) => at % 251)))
    writeFileSync(join(data, 'empty'), '')
    mkdirSync(join(data, 'nothing'))
  })
  return { agent, directory: join(agent.allocDir, ALLOC), uiUrl: (path: string) => `${agent.url}/ui${path}` }
}

test('an allocation is found, and its directories are opened by keys up to a file', { skip }, async (t) => {
  const { agent } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: '/files' })
  await page.getByRole('link', { name: 'web.api[0]' }).waitFor()
  await page.getByLabel('Search allocations').fill('nothing')
  await page.getByText('No allocation matches').waitFor()
  await page.getByLabel('Search allocations').fill('WEB web-host')
  await page.getByRole('link', { name: 'web.api[0]' }).click()
  await page.getByRole('link', { name: 'alloc/' }).waitFor()
  await page.keyboard.press('j')
  await page.keyboard.press('Enter')
  await page.getByRole('link', { name: 'data/' }).click()
  await page.getByRole('link', { name: 'long.txt' }).waitFor()
  assert.equal(new URL(page.url()).pathname, `/ui/files/${ALLOC}/alloc/data`)
  assert.match(await page.locator('.table-row', { hasText: 'bytes' }).innerText(), /195 KiB[\s\S]+-rw-r--r--/)
  await expectNoAxeViolations(page, 'directory')
  await page.getByRole('link', { name: 'nothing/' }).click()
  await page.getByText('The directory is empty').waitFor()
  await page.keyboard.press('u')
  await page.getByRole('link', { name: 'long.txt' }).waitFor()
})

test('text is shown in parts', { skip }, async (t) => {
  const { agent, directory } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/files/${ALLOC}/alloc/data/long.txt` })
  const content = page.getByRole('region', { name: 'Content of the file' })
  await content.getByText('line 0\n').first().waitFor()
  await page.getByText('The first 256 KiB of 419 KiB.').waitFor()
  await page.getByRole('button', { name: 'Load more' }).click()
  await page.getByText('The end of the file.').waitFor()
  const text = String(await page.evaluate(`document.querySelector('.file-content').textContent`))
  assert.equal(text, readFileSync(join(directory, 'alloc/data/long.txt'), 'utf8'))
  assert.equal(await page.getByRole('button', { name: 'Load more' }).count(), 0)
})

test('an image is shown by its content, and a document with scripts as text', { skip }, async (t) => {
  const { agent, uiUrl } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/files/${ALLOC}/alloc/data/picture` })
  await page.getByText('image/png 7 × 5').waitFor()
  await page.goto(uiUrl(`/files/${ALLOC}/alloc/data/broken.png`))
  await page.getByText('The browser cannot decode the image').waitFor()
  await page.goto(uiUrl(`/files/${ALLOC}/alloc/data/page.svg`))
  await page.getByText('onload="alert(1)"').waitFor()
  assert.equal(await page.locator('main svg, main img').count(), 0)
  await page.keyboard.press('i')
  await page.getByText('The content of this file is not an image').waitFor()
  assert.equal(new URL(page.url()).search, '')
  await page.goto(uiUrl(`/files/${ALLOC}/alloc/data/empty`))
  await page.getByText('The file is empty').waitFor()
})

test('bytes are shown with offsets, of which any can be reached', { skip }, async (t) => {
  const { agent, directory } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/files/${ALLOC}/alloc/data/bytes` })
  const rows = page.locator('.hex-row')
  await rows.first().getByText('00 01 02 03 04 05 06 07').waitFor()
  assert.ok((await rows.count()) < 80)
  await page.getByLabel('Offset').fill('0x20000')
  await page.keyboard.press('Enter')
  const expected = [...readFileSync(join(directory, 'alloc/data/bytes')).subarray(0x20000, 0x20008)]
  const digits = expected.map((byte) => byte.toString(16).padStart(2, '0')).join(' ')
  await rows.filter({ hasText: '00020000' }).getByText(digits).waitFor()
  await page.getByLabel('Offset').fill('200000')
  await page.getByText('Enter a number below 200000.').waitFor()
})

test('the tail of a file shows what is appended, and that it was deleted', { skip }, async (t) => {
  const { agent, directory } = await startWorld(t)
  const file = join(directory, 'alloc/data/growing.txt')
  writeFileSync(file, 'first line\n')
  const { page } = await openUi(t, {
    url: agent.url,
    token: OPS,
    path: `/files/${ALLOC}/alloc/data/growing.txt?as=tail`,
  })
  const log = page.getByRole('log')
  await log.getByText('first line').waitFor()
  await page.getByText('Following the file.').waitFor()
  appendFileSync(file, 'grö')
  appendFileSync(file, `ße ${HOSTILE_TEXT}\n`)
  await log.getByText(`größe ${HOSTILE_TEXT}`).waitFor()
  appendFileSync(file, Array.from({ length: 500 }, (_, at) => `more ${at}\n`).join(''))
  await log.getByText('more 499').waitFor()
  const isAtEnd = `(({ clientHeight, scrollHeight, scrollTop }) => scrollHeight - clientHeight - scrollTop < 5)(document.querySelector('[role=log]'))`
  await eventually(async () => Boolean(await page.evaluate(isAtEnd)), 'the end is in view')
  rmSync(file)
  await page.getByText('The file was deleted.').waitFor()
})

test('a file is downloaded with the token in a header', { skip }, async (t) => {
  const { agent, directory, uiUrl } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: '/files' })
  const urls: string[] = []
  page.on('request', (request) => urls.push(request.url()))
  await page.goto(uiUrl(`/files/${ALLOC}/alloc/data/bytes`))
  const [saved] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download' }).click(),
  ])
  assert.equal(saved.suggestedFilename(), 'bytes')
  assert.deepEqual(readFileSync(await saved.path()), readFileSync(join(directory, 'alloc/data/bytes')))
  assert.ok(urls.every((url) => !url.includes(OPS)))
})

test('files with hostile names are listed, linked, loaded again and run nothing', { skip }, async (t) => {
  const { agent, uiUrl } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/files/${ALLOC}/alloc/data/names` })
  const links = page.getByRole('table', { name: 'Files' }).getByRole('link')
  await eventually(async () => (await links.count()) === HOSTILE_NAMES.length, 'all names')
  const shown = await links.allInnerTexts()
  assert.ok(shown.includes(String.raw`right\u{202e}exe.txt`))
  assert.ok(shown.includes(String.raw`line\u{a}feed`))
  for (const name of HOSTILE_NAMES) {
    await page.goto(uiUrl(`/files/${ALLOC}/alloc/data/names/${encodeURIComponent(name)}`))
    await page.getByText(HOSTILE_TEXT).waitFor()
    await page.reload()
    await page.getByText(HOSTILE_TEXT).waitFor()
    assert.ok((await page.title()).endsWith('· outpost'))
  }
  assert.equal(await page.locator('main img, main svg, main script').count(), 0)
})

test('a private file and a missing one say why they are not shown', { skip }, async (t) => {
  const { agent, uiUrl } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/files/${ALLOC}/web/secrets/token` })
  await page.getByRole('alert').waitFor()
  assert.equal((await page.content()).includes(SECRET), false)
  await page.goto(uiUrl(`/files/${ALLOC}/alloc/missing`))
  await page.getByText('no such file or directory').waitFor()
  await page.getByRole('button', { name: 'Retry' }).waitFor()
})

test('a token without read-fs sees no files', { skip }, async (t) => {
  const { agent } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: READER, path: `/files/${ALLOC}` })
  await page.getByText('The policies of your token do not allow this.').waitFor()
  await page.goto(`${agent.url}/ui/files`)
  await page.getByText('of the namespace default: this needs the capability "read-fs"').waitFor()
  await page.getByText('web.api[0]').waitFor()
  assert.equal(await page.getByRole('link', { name: 'web.api[0]' }).count(), 0)
})
