/**
 * Refuses the words of the list in docs/style.md in sources, documents and scripts.
 *
 *     node scripts/check-words.ts             all of them
 *     node scripts/check-words.ts PATH ...    files and folders, relative to the project
 *     --count                                 the number of lines for each folder only
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { parseArgs } from 'node:util'

const ROOT = resolve(import.meta.dirname, '..')
const LIST = join(ROOT, 'docs/style.md')
const CHECKED = ['src', 'docs', 'scripts', 'README.md']
const TEXT_FILE = /\.(ts|cts|md)$/
/** Quotes the words. */
const EXEMPT = /^docs\/style\.md$/

interface WordRule {
  readonly pattern: RegExp
  readonly advice: string
}

/** Rows of the table below "Word list": a regular expression in backticks with `\|` for `|`, and what to write. */
function wordRules(document: string): WordRule[] {
  const table = document.slice(document.indexOf('## Word list'))
  const rules = [...table.matchAll(/^\| `(.+)` \| (.+) \|$/gm)].map(([, pattern = '', advice = '']) => ({
    pattern: new RegExp(pattern.replaceAll('\\|', '|'), 'i'),
    advice,
  }))
  if (rules.length === 0) throw new Error(`${LIST} has no word list`)
  return rules
}

function filesBelow(path: string): string[] {
  if (statSync(path).isFile()) return [path]
  return readdirSync(path, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && TEXT_FILE.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted()
}

const { values, positionals } = parseArgs({ options: { count: { type: 'boolean' } }, allowPositionals: true })
const rules = wordRules(readFileSync(LIST, 'utf8'))
const hits = (positionals.length > 0 ? positionals : CHECKED)
  .flatMap((path) => filesBelow(resolve(ROOT, path)))
  .map((file) => ({ file, name: relative(ROOT, file) }))
  .filter(({ name }) => !EXEMPT.test(name))
  .flatMap(({ file, name }) =>
    readFileSync(file, 'utf8')
      .split('\n')
      .flatMap((line, index) => {
        const rule = rules.find(({ pattern }) => pattern.test(line))
        return rule ? [{ name, text: `${name}:${index + 1}: ${line.trim()}  (write: ${rule.advice})` }] : []
      }),
  )
const lines = values.count
  ? [...Map.groupBy(hits, ({ name }) => dirname(name))].map(([folder, { length }]) => `${length}\t${folder}`)
  : hits.map(({ text }) => text)
process.stdout.write([...lines, `words of docs/style.md: ${hits.length} lines`, ''].join('\n'))
process.exitCode = hits.length > 0 ? 1 : 0
