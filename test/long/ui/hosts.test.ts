/** The views of hosts in a browser, against an agent. */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import type { Page } from 'playwright-core'
import { ALLOC, makeAllocation } from '../../helpers/allocation.ts'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { eventually } from '../../helpers/eventually.ts'
import { expectFocus, expectNoAxeViolations, openUi } from '../../helpers/browser/page.ts'
import { HOST_READER, OPS, READER, startHost } from '../../ui/hosts-fixture.ts'

const skip = whyNoChromium()
const ENDED = 'a1b2c3d4-0000-4000-8000-00000000000e'
const HOSTILE = '<img src=x onerror=alert(1)>'

async function startWorld(t: TestContext) {
  const agent = await startHost(t, (allocDir) => {
    makeAllocation(allocDir, ALLOC, { Name: 'web.api[0]', JobID: HOSTILE })
    const tasks = { web: { State: 'dead', FinishedAt: '2026-11-21T11:00:00Z' } }
    makeAllocation(allocDir, ENDED, { Name: 'old.job[0]', ClientStatus: 'complete', Tasks: tasks })
  })
  const nodes: readonly { readonly ID: string }[] = JSON.parse(await (await agent.ask('/v1/nodes')).text())
  return { agent, nodeId: nodes[0]?.ID ?? '', uiUrl: (path: string) => `${agent.url}/ui${path}` }
}

test('hosts are listed with their use, found by words and metadata, and opened by keys', { skip }, async (t) => {
  const { agent, nodeId, uiUrl } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: '/hosts' })
  const rows = page.getByRole('table', { name: 'Hosts' }).locator('.table-row')
  await rows.filter({ hasText: 'web-host' }).waitFor()
  await rows.locator('.usage').nth(2).waitFor()
  assert.match(await rows.first().innerText(), /ready[\s\S]+0\.1\.0[\s\S]+1[\s\S]+%/)
  await expectNoAxeViolations(page, 'list')

  const search = page.getByLabel('Search hosts')
  await page.keyboard.press('/')
  await page.keyboard.type('rack=r2')
  await page.getByText('No host matches').waitFor()
  await page.getByRole('button', { name: 'All 0' }).waitFor()
  assert.equal(new URL(page.url()).search, '?q=rack%3Dr2')
  await search.fill('HOST rack=r1')
  await rows.first().waitFor()
  await page.goto(uiUrl('/hosts?q=nothing'))
  await page.getByText('No host matches').waitFor()
  await page.getByRole('button', { name: 'All 0' }).waitFor()
  await page.goto(uiUrl('/hosts?q=web&sort=-disk'))
  await page.getByText('All hosts that are ready have been measured.').waitFor()
  await page.locator('[aria-sort=descending]', { hasText: 'Disk' }).waitFor()
  await page.keyboard.press('j')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'web-host' }).waitFor()
  assert.equal(new URL(page.url()).pathname, `/ui/hosts/${nodeId}`)
})

test('plots of the host and its tasks are drawn without refused resources', { skip }, async (t) => {
  const { agent, nodeId } = await startWorld(t)
  // The test itself reads pixels.
  const expected = /willReadFrequently/
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/hosts/${nodeId}`, expected })
  await page.locator('.plot canvas').nth(2).waitFor()
  await page.getByRole('img', { name: /^CPU: total [\d.]+ %/ }).waitFor()
  await page
    .getByRole('img', { name: /^Memory: used [\d.]+ [KMG]iB/ })
    .first()
    .waitFor()
  const colors = await eventuallyColors(page)
  assert.ok(colors > 3, `${colors} colours`)
  await page.getByRole('region', { name: 'Tasks of web.api[0]' }).scrollIntoViewIfNeeded()
  await page.getByRole('heading', { name: 'web web.api[0]' }).waitFor()
  await expectNoAxeViolations(page, 'host')
})

/** Colours in the first plot, after two samples have made a line. */
async function eventuallyColors(page: Page): Promise<number> {
  let count = 0
  await eventually(async () => {
    count = Number(
      await page.evaluate(`(() => {
        const canvas = document.querySelector('.plot canvas')
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
        const colors = new Set()
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 250) colors.add(data[at] + ',' + data[at + 1] + ',' + data[at + 2])
        return colors.size
      })()`),
    )
    return count > 3
  }, 'the plot has a line')
  return count
}

test('dynamic metadata is added, changed and removed, and shown as the host confirms it', { skip }, async (t) => {
  const { agent, nodeId } = await startWorld(t)
  const metadata = async () => {
    const response = await agent.ask(`/v1/client/metadata?node_id=${nodeId}`)
    const { Dynamic }: { readonly Dynamic: Readonly<Record<string, string | null>> } = JSON.parse(await response.text())
    return Dynamic
  }
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/hosts/${nodeId}?tab=metadata` })
  const row = (key: string) => page.locator('tr', { has: page.getByRole('rowheader', { name: key, exact: true }) })
  await row('rack').getByText('static').waitFor()
  assert.match(await row('weird key').innerText(), /<img src=x onerror/)
  assert.equal(await row('weird key').getByRole('button').count(), 0)

  await page.getByRole('button', { name: 'Add a key' }).click()
  await page.getByLabel('Key', { exact: true }).fill('a/b')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByRole('alert').getByText('A key consists of').waitFor()
  await page.getByLabel('Key', { exact: true }).fill('note.hostile')
  await page.getByLabel('Value').fill(HOSTILE)
  await page.getByRole('button', { name: 'Save' }).click()
  await row('note.hostile').getByText(HOSTILE).waitFor()
  assert.deepEqual(await metadata(), { 'note.hostile': HOSTILE })

  await page.getByRole('button', { name: 'Change rack' }).click()
  await page.getByLabel('Value').fill('r2')
  await page.getByRole('button', { name: 'Save' }).click()
  await row('rack').getByText('Configured: r1').waitFor()
  assert.deepEqual(await metadata(), { 'note.hostile': HOSTILE, rack: 'r2' })
  await expectNoAxeViolations(page, 'metadata')

  await page.getByRole('button', { name: 'Add a key' }).click()
  await page.getByLabel('Key', { exact: true }).fill('rack')
  await page.getByRole('dialog').getByText('The host has this key already: r2').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Save' }).count(), 0)
  await page.getByRole('button', { name: 'Replace the value' }).waitFor()
  await page.keyboard.press('Escape')

  for (const key of ['note.hostile', 'rack']) {
    await page.getByRole('button', { name: `Remove ${key}` }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
  }
  await row('rack').getByText('unset', { exact: true }).first().waitFor()
  assert.equal(await row('note.hostile').count(), 0)
  assert.deepEqual(await metadata(), { rack: null })
})

test('a token that may only read is offered no action', { skip }, async (t) => {
  const { agent, nodeId, uiUrl } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: READER, path: `/hosts/${nodeId}` })
  await page.getByText('old.job[0]').waitFor()
  await page.locator('.plot canvas').first().waitFor()
  assert.equal(await page.getByRole('button', { name: /Collect/ }).count(), 0)
  assert.equal(await page.getByRole('link', { name: 'Files', exact: true }).count(), 1)
  await page.goto(uiUrl(`/hosts/${nodeId}?tab=metadata`))
  await page.getByText('may read metadata, but not change it').waitFor()
  assert.equal(await page.getByRole('button', { name: /Add a key|Change|Remove|Unset/ }).count(), 0)
  await page.keyboard.press('c')
  assert.equal(await page.getByRole('dialog').count(), 0)
})

test('the number of allocations is not shown to a token that may not see them', { skip }, async (t) => {
  const { agent } = await startWorld(t)
  const cell = '.table-row [role=cell]:nth-child(7)'
  const { page } = await openUi(t, { url: agent.url, token: READER, path: '/hosts' })
  await page.locator(cell).getByText('1', { exact: true }).waitFor()
  const other = await openUi(t, { url: agent.url, token: HOST_READER, path: '/hosts' })
  await other.page.locator(cell).getByTitle('Your token may not read jobs').waitFor()
})

test('the use of the disk is visible on a narrow screen', { skip }, async (t) => {
  const { agent } = await startWorld(t)
  const { page } = await openUi(t, {
    url: agent.url,
    token: OPS,
    path: '/hosts',
    viewport: { width: 360, height: 740 },
  })
  const use = page.locator('.usage').last()
  await use.waitFor()
  const [cell, table] = [await use.boundingBox(), await page.getByRole('table', { name: 'Hosts' }).boundingBox()]
  assert.ok(cell && table && cell.x + cell.width <= table.x + table.width, JSON.stringify({ cell, table }))
})

test('long names fit a narrow screen, and their buttons stay whole', { skip }, async (t) => {
  const long = 'n'.repeat(300)
  const agent = await startHost(
    t,
    (allocDir) => void makeAllocation(allocDir, ALLOC, { Name: long, JobID: `job-${long}` }),
  )
  const nodes: readonly { readonly ID: string }[] = JSON.parse(await (await agent.ask('/v1/nodes')).text())
  const body = JSON.stringify({ NodeID: nodes[0]?.ID, Meta: { [long]: 'value' } })
  assert.equal((await agent.ask(`/v1/client/metadata?node_id=${nodes[0]?.ID}`, { method: 'POST', body })).status, 200)
  const viewport = { width: 360, height: 800 }
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/logs/${ALLOC}/web`, viewport })
  await page.getByRole('navigation', { name: 'Parents' }).getByText(long, { exact: true }).waitFor()
  await fits(page, 'main')
  await page.goto(`${agent.url}/ui/logs/wall`)
  await page.getByRole('button', { name: 'Add a tail' }).first().click()
  await page.getByRole('dialog').getByRole('listitem').getByText(`job-${long}`).first().waitFor()
  await fits(page, '.dialog-body')
  await fits(page, '.wall-offered')
  await page.goto(`${agent.url}/ui/hosts/${nodes[0]?.ID}?tab=metadata`)
  const change = page.getByRole('button', { name: `Change ${long}` })
  await change.waitFor()
  assert.ok(((await change.boundingBox())?.height ?? 99) < 40, 'the text of the button is in one line')
})

async function fits(page: Page, selector: string): Promise<void> {
  const width = `(({ clientWidth, scrollWidth }) => scrollWidth - clientWidth)(document.querySelector('${selector}'))`
  assert.equal(await page.evaluate(width), 0, `${selector} does not scroll sideways`)
}

test('a garbage collection shows what it removes, and then what it has removed', { skip }, async (t) => {
  const { agent, nodeId } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: `/hosts/${nodeId}` })
  await page.getByRole('table', { name: 'Allocations' }).getByText('old.job[0]').waitFor()
  await page.getByRole('button', { name: 'Collect garbage…' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('Removes the directories of 1 ended allocation').waitFor()
  const listed = dialog.locator('tbody tr')
  assert.equal(await listed.count(), 1)
  assert.match(await listed.first().innerText(), /old\.job\[0\][\s\S]+complete[\s\S]+yes/)
  assert.ok(existsSync(join(agent.allocDir, ENDED)))
  await expectNoAxeViolations(page, 'collection')
  await dialog.getByRole('button', { name: 'Remove 1' }).click()
  await dialog.getByText('Removed 1 of 1.').waitFor()
  await expectFocus(page, 'H2 Garbage collection')
  assert.equal(existsSync(join(agent.allocDir, ENDED)), false)
  assert.equal(existsSync(join(agent.allocDir, ALLOC)), true)
  await dialog.getByRole('button', { name: 'Close' }).last().click()
  await page.getByRole('button', { name: 'Collect garbage…' }).click()
  await dialog.getByText('Nothing to collect').waitFor()
})

const idOf = (at: number) => `00000000-0000-4000-8000-${String(at).padStart(12, '0')}`

const nodeOf = (at: number) => ({
  Address: `10.0.${at >> 8}.${at & 255}`,
  Datacenter: 'dc1',
  ID: idOf(at),
  Name: `worker-${at}`,
  NodeClass: at % 2 ? 'gpu' : '',
  NodePool: 'default',
  Status: at % 100 === 99 ? 'down' : 'ready',
  StatusDescription: '',
  StatusUpdatedAt: 1_795_000_000,
  Version: '0.1.0',
})

test('5000 hosts are listed with few rows in the document, and the fullest disk is found by sorting', {
  skip,
}, async (t) => {
  const { agent, uiUrl } = await startWorld(t)
  const { page } = await openUi(t, { url: agent.url, token: OPS, path: '/status' })
  const [total, pageSize] = [5000, 1000]
  await page.route('**/v1/nodes?*', (route) => {
    const from = Number(new URL(route.request().url()).searchParams.get('next_token') ?? 0)
    const headers = from + pageSize < total ? { 'X-Nomad-NextToken': String(from + pageSize) } : {}
    return route.fulfill({ headers, json: Array.from({ length: pageSize }, (_, at) => nodeOf(from + at)) })
  })
  let measured = 0
  const stats = JSON.parse(await (await agent.ask('/v1/client/stats')).text())
  await page.route('**/v1/client/stats?*', (route) => {
    measured++
    const isFull = route.request().url().includes(idOf(4390))
    const disk = { ...stats.AllocDirStats, Mountpoint: '/data', UsedPercent: isFull ? 99 : 20 }
    return route.fulfill({ json: { ...stats, AllocDirStats: disk, DiskStats: [disk] } })
  })
  await page.route('**/v1/node/*/allocations*', (route) => route.fulfill({ json: [] }))
  await page.goto(uiUrl('/hosts'))
  await page.getByRole('button', { name: 'All 5000' }).waitFor()
  const rows = page.locator('.table-row')
  await rows.first().locator('.usage').first().waitFor()
  assert.ok((await rows.count()) < 100)
  assert.ok(measured < 100, `${measured} hosts were measured`)
  await page.getByLabel('Search hosts').fill('worker-4999')
  await eventually(async () => (await rows.count()) === 1, 'one row')
  // Few of them, so that the test is short; the order is by the use of all.
  await page.getByLabel('Search hosts').fill('worker-43')
  await page.getByRole('button', { name: 'Disk' }).click()
  // Before the list is loaded again, which sorts it as well.
  await rows.first().filter({ hasText: 'worker-4390' }).waitFor({ timeout: 40_000 })
  assert.match(await rows.first().innerText(), /99 %/)
})
