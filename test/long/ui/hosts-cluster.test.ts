/** The views of hosts, files and status on a server, for hosts that it reaches over NATS. */
import assert from 'node:assert/strict'
import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { makeAllocation } from '../../helpers/allocation.ts'
import { whyNoChromium } from '../../helpers/browser/chromium.ts'
import { openUi } from '../../helpers/browser/page.ts'
import { startCluster } from '../../helpers/cluster.ts'
import { eventually } from '../../helpers/eventually.ts'

const ENDED = 'c1a57e00-0000-4000-8000-0000000000ee'

test('a server shows and changes hosts that it reaches over NATS', { skip: whyNoChromium() }, async (t) => {
  const cluster = await startCluster(t, { here: ['server', 'client'] })
  const { allocId, logs, member } = cluster.host(1)
  const ended = makeAllocation(join(member.dataDir, 'alloc'), ENDED, {
    Name: 'old.job[0]',
    ClientStatus: 'complete',
    Tasks: { web: { State: 'dead', FinishedAt: '2026-11-21T11:00:00Z' } },
  })
  const { url } = cluster.server()
  const uiUrl = (path: string) => `${url}/ui${path}`
  const { page } = await openUi(t, { url, path: '/hosts' })

  const rows = page.getByRole('table', { name: 'Hosts' }).locator('.table-row')
  await rows.filter({ hasText: 'client-1' }).locator('.usage').nth(2).waitFor()
  assert.equal(await rows.count(), 2)
  await page.getByRole('link', { name: 'client-1' }).click()
  await page.locator('.plot canvas').nth(2).waitFor()

  await page.getByRole('link', { name: 'Metadata' }).click()
  await page.getByRole('button', { name: 'Add a key' }).click()
  await page.getByLabel('Key', { exact: true }).fill('rack')
  await page.getByLabel('Value').fill('r7')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByRole('row', { name: 'rack r7 dynamic' }).waitFor()
  const own = await fetch(`${member.url}/v1/client/metadata`)
  assert.match(await own.text(), /"Dynamic":\{"rack":"r7"\}/)

  await page.getByRole('link', { name: 'Overview' }).click()
  await page.getByRole('table', { name: 'Allocations' }).getByText('old.job[0]').waitFor()
  await page.getByRole('button', { name: 'Collect garbage…' }).click()
  await page.getByRole('button', { name: 'Remove 1' }).click()
  await page.getByText('Removed 1 of 1.').waitFor()
  assert.equal(existsSync(ended), false)

  writeFileSync(join(logs, 'web.stdout.0'), 'over NATS\n')
  await page.goto(uiUrl(`/files/${allocId}/alloc/logs/web.stdout.0?as=tail`))
  await page.getByRole('log').getByText('over NATS').waitFor()
  appendFileSync(join(logs, 'web.stdout.0'), 'and appended\n')
  await page.getByRole('log').getByText('and appended').waitFor()

  await page.goto(uiUrl('/status'))
  await page.getByRole('listitem').filter({ hasText: 'nats' }).getByText('ok', { exact: true }).waitFor()
  await page.getByRole('row', { name: /server-0 \(this server\)/ }).waitFor()
  await page.getByRole('link', { name: '2 ready' }).waitFor()
  await cluster.host(0).member.stop()
  const statusOf = async () => {
    const nodes: readonly { readonly Name: string; readonly Status: string }[] = JSON.parse(
      await (await fetch(`${url}/v1/nodes`)).text(),
    )
    return nodes.find(({ Name }) => Name === 'client-0')?.Status ?? ''
  }
  await eventually(async () => (await statusOf()) !== 'ready', 'the host has left')
  await page.goto(uiUrl(`/hosts?status=${await statusOf()}`))
  await rows.filter({ hasText: 'client-0' }).waitFor()
  await page.getByRole('link', { name: 'client-0' }).click()
  await page.getByText('so it cannot be asked').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Collect garbage…' }).count(), 0)
})

test('a host that is down shows no old use and offers no collection', { skip: whyNoChromium() }, async (t) => {
  const cluster = await startCluster(t, { here: ['server', 'client'] })
  const { member } = cluster.host(1)
  makeAllocation(join(member.dataDir, 'alloc'), ENDED, {
    Name: 'old.job[0]',
    ClientStatus: 'complete',
    Tasks: { web: { State: 'dead', FinishedAt: '2026-11-21T11:00:00Z' } },
  })
  const { url } = cluster.server()
  const { page } = await openUi(t, { url, path: '/hosts' })
  const row = page.getByRole('table', { name: 'Hosts' }).locator('.table-row').filter({ hasText: 'client-1' })
  await row.locator('.usage').nth(2).waitFor()
  const other = await openUi(t, { url, path: '/hosts' })
  await other.page.getByRole('link', { name: 'client-1' }).click()
  await other.page.getByRole('button', { name: 'Collect old.job[0]' }).waitFor()
  await member.stop()
  await row.getByText(/^(down|disconnected)$/).waitFor()
  await eventually(async () => !/%/.test(await row.innerText()), 'the old use is removed')
  await other.page.getByText('so it cannot be asked').waitFor()
  await other.page.getByText('old.job[0]').waitFor()
  assert.equal(await other.page.getByRole('button', { name: /^Collect/ }).count(), 0)
  const allocations: readonly { readonly NodeName: string; readonly JobID: string; readonly Name: string }[] =
    JSON.parse(await (await fetch(`${url}/v1/allocations`)).text())
  const lost = allocations.find(({ Name, NodeName }) => NodeName === 'client-1' && Name !== 'old.job[0]')
  await page.goto(`${url}/ui/logs/job/default/${encodeURIComponent(lost?.JobID ?? '')}`)
  await page.getByText(/^Lines are missing: the log of .* cannot be read: .*No path to node/).waitFor()
})
