/** The Grafana dashboard: written by its script, with metrics and sections of the documentation that exist. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { dashboardText } from '../scripts/dashboard.ts'

const ROOT = resolve(import.meta.dirname, '..')
const FILE = join(ROOT, 'deploy/grafana/outpost.json')
const METRIC_TABLE = 'docs/reference/metrics.md'
const METRIC = /\b(?:outpost|nomad|process)_[a-z0-9_]+/g

interface DashboardPanel {
  readonly type: string
  readonly title: string
  readonly links?: readonly { readonly url: string }[]
  readonly targets?: readonly { readonly expr: string }[]
}

const text = readFileSync(FILE, 'utf8')
const { panels } = JSON.parse(text) as { readonly panels: readonly DashboardPanel[] }
const graphs = panels.filter(({ type }) => type !== 'row')

test('the committed dashboard equals the output of its script', () => {
  assert.equal(text, dashboardText(), 'run: node scripts/dashboard.ts')
  assert.ok(graphs.length > 30)
})

test('the dashboard shows only metrics that the documentation explains', () => {
  const documented = new Set(readFileSync(join(ROOT, METRIC_TABLE), 'utf8').match(METRIC))
  const shown = graphs.flatMap(({ targets = [] }) => targets.flatMap(({ expr }) => expr.match(METRIC) ?? []))
  const unknown = shown.filter((name) => !documented.has(name) && !documented.has(name.replace(/_bucket$/, '')))
  assert.deepEqual(unknown, [])
  assert.ok(shown.length > 40)
})

test('each panel links to a section of the documentation that exists', () => {
  const missing = graphs.flatMap(({ links = [], title }) => {
    const [, page = '', anchor = ''] = /^\$\{docs\}\/([^#]+)#(.+)$/.exec(links[0]?.url ?? '') ?? []
    const content = page === '' ? '' : readFileSync(join(ROOT, 'docs', page), 'utf8')
    const headings = [...content.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^a-z0-9 -]/g, '')
        .replaceAll(' ', '-'),
    )
    return content.includes(`<a id="${anchor}">`) || headings.includes(anchor) ? [] : [`${title}: ${links[0]?.url}`]
  })
  assert.deepEqual(missing, [])
})
