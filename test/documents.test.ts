/** The documents: every link leads to a file and a heading that exist, and every page of the guide has a table of contents. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { test } from 'node:test'
import { REFERENCES } from '../scripts/reference.ts'
import { MIGRATIONS } from '../src/storage/sqlite/database.ts'

const ROOT = resolve(import.meta.dirname, '..')
/** Folders of pages that open with a table of contents. */
const GUIDES = ['docs/operating', 'docs/troubleshooting']
/** A page with fewer headings is short enough without one. */
const HEADINGS_MIN = 2

function documents(): string[] {
  const pages = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  const below = pages.filter((name) => name.endsWith('.md')).map((name) => join('docs', name))
  return ['README.md', 'CHANGELOG.md', 'bench/README.md', 'recipes/README.md', ...below]
}

/** The text without blocks of code, in which `#` and brackets have other meanings. */
function proseOf(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8').replaceAll(/^```[^]*?^```$/gm, '')
}

/** The anchor that a forge gives to a heading. */
function anchorOf(heading: string): string {
  const plain = heading.toLowerCase().replaceAll(/[^\p{L}\p{N}\- _]/gu, '')
  return plain.replaceAll(' ', '-')
}

function headingsOf(path: string): string[] {
  return [...proseOf(path).matchAll(/^#{1,4} (.*)$/gm)].map(([, heading = '']) => heading)
}

function anchorsOf(path: string): Set<string> {
  const named = [...proseOf(path).matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id)
  return new Set([...headingsOf(path).map(anchorOf), ...named])
}

/** What is wrong with a link of a document, or undefined. */
function faultOf(path: string, target: string): string | undefined {
  const [file = '', anchor] = target.split('#')
  const named = file === '' ? path : relative(ROOT, resolve(ROOT, dirname(path), file))
  if (!existsSync(join(ROOT, named))) return 'no such file'
  if (anchor === undefined || statSync(join(ROOT, named)).isDirectory()) return undefined
  return anchorsOf(named).has(anchor) ? undefined : 'no such heading'
}

test('links between documents lead to existing files and headings', () => {
  const wrong: string[] = []
  for (const path of documents()) {
    const prose = proseOf(path).replaceAll(/`[^`\n]*`/g, (code) => code.replaceAll(/[[\]]/g, ''))
    for (const [, target = ''] of prose.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue
      const fault = faultOf(path, target)
      if (fault !== undefined) wrong.push(`${path}: ${target}: ${fault}`)
    }
  }
  assert.deepEqual(wrong, [])
})

test('each page of the guide has a table of contents with all its sections', () => {
  for (const folder of GUIDES) {
    for (const name of readdirSync(join(ROOT, folder))) {
      const prose = proseOf(join(folder, name))
      const sections = [...prose.matchAll(/^## (.*)$/gm)].map(([, heading = '']) => heading)
      if (sections.length < HEADINGS_MIN) continue
      const [opening = ''] = prose.split(/^## /m)
      const contents = [...opening.matchAll(/^- \[(.*)\]\(#(.*)\)$/gm)].map(([, title, anchor]) => `${title} ${anchor}`)
      assert.deepEqual(
        contents,
        sections.map((heading) => `${heading} ${anchorOf(heading)}`),
        join(folder, name),
      )
    }
  }
})

test('the contents of the long documents have all their sections', () => {
  for (const name of ['guarantees', 'security', 'compatibility', 'architecture']) {
    const prose = proseOf(`docs/${name}.md`)
    const [, contents = ''] = /^\*\*Contents:\*\* ([^]*?)\n\n/m.exec(prose) ?? []
    const named = [...contents.matchAll(/\[([^\]]*)\]\(#/g)].map(([, title]) => title)
    assert.deepEqual(
      named,
      [...prose.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading),
      name,
    )
  }
})

test('the index of the guide names every page', () => {
  const index = proseOf('docs/operating.md') + proseOf('docs/troubleshooting.md')
  const missing = GUIDES.flatMap((folder) =>
    readdirSync(join(ROOT, folder))
      .map((name) => join(relative('docs', folder), name))
      .filter((page) => !index.includes(`](${page})`)),
  )
  assert.deepEqual(missing, [])
})

for (const [path, text] of Object.entries(REFERENCES)) {
  test(`${path} equals the output of npm run docs:reference`, () => {
    assert.equal(readFileSync(join(ROOT, path), 'utf8'), text(), 'run npm run docs:reference')
  })
}

test('docs/releases.md has the format versions of the sources', () => {
  const rows = [...proseOf('docs/releases.md').matchAll(/^\| [^|]+ \| (\d+) \| `(src\/[^`]+)` \(`(\w+)`\) \|/gm)]
  assert.equal(rows.length, 14)
  const wrong = rows.flatMap(([, number, file = '', constant = '']) => {
    const source = readFileSync(join(ROOT, file), 'utf8')
    const assigned = new RegExp(`^(?:export )?const ${constant} = (\\d+)$`, 'm').exec(source)?.[1]
    const actual = constant === 'MIGRATIONS' ? String(MIGRATIONS.length) : assigned
    return actual === number ? [] : [`${file}: ${constant} is ${actual}, the document has ${number}`]
  })
  assert.deepEqual(wrong, [])
})

test('the README has the commands of the continuous integration', () => {
  const commands = readFileSync(join(ROOT, '.ci/run'), 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('npm '))
  assert.ok(
    readFileSync(join(ROOT, 'README.md'), 'utf8').includes(`\n${commands.join(' && ')} `),
    commands.join(' && '),
  )
})

test('the changelog has the unreleased entries first and then the version of the program', () => {
  const headings = [...proseOf('CHANGELOG.md').matchAll(/^## (.*)$/gm)].map(([, heading = '']) => heading)
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  assert.deepEqual(headings.slice(0, 2), ['Unreleased', version])
})

test('the index of decisions names each decision', () => {
  const index = proseOf('docs/decisions/README.md')
  const decisions = readdirSync(join(ROOT, 'docs/decisions')).filter((name) => name !== 'README.md')
  assert.deepEqual(
    decisions.filter((name) => !index.includes(`](${name})`)),
    [],
  )
})
