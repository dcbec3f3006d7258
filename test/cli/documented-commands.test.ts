/** Each command line of the documents names a command of the program, and options that it has. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { COMMAND_NAMES, loadCommands } from '../../src/cli/command-table.ts'

const ROOT = resolve(import.meta.dirname, '../..')
/** Options of each command that its help does not list. */
const GENERAL_OPTIONS = ['help', 'h']
/** The help, and a word that stands for any command. */
const NOT_COMMANDS = ['help', 'COMMAND']

/** Decisions describe commands as they were at their time. */
function documents(): string[] {
  const pages = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  const guide = pages.filter((name) => name.endsWith('.md') && !name.startsWith('decisions/'))
  return ['README.md', 'recipes/README.md', ...guide.map((name) => join('docs', name))]
}

/** The words of each command line in blocks of code and in code between backticks. */
function commandLines(text: string): string[][] {
  const blocks = [...text.matchAll(/^```\w*\n([^]*?)^```$/gm)].map(([, block = '']) => block.replaceAll('\\\n', ' '))
  const spans = [...text.replaceAll(/^```[^]*?^```$/gm, '').matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span)
  const lines = [...blocks.flatMap((block) => block.split('\n')), ...spans]
  return lines.flatMap((line) => {
    const code = line.replace(/\s+#\s.*$/, '').replaceAll(/\$\((outpost [^)]*)\)/g, ' ; $1 ; ')
    return [...code.matchAll(/(?:^|[\s|;&'"(])(?:bin\/)?outpost ([^|;&>)"]+)/g)].map(([, rest = '']) =>
      rest.trim().split(/\s+/),
    )
  })
}

test('the commands and options of the documents exist', async () => {
  const commands = new Map((await loadCommands(COMMAND_NAMES)).map((command) => [command.name, command]))
  const wrong: string[] = []
  let count = 0
  for (const path of documents()) {
    for (const words of commandLines(readFileSync(join(ROOT, path), 'utf8'))) {
      const [first = ''] = words
      const isGroup = words.length === 1 && COMMAND_NAMES.some((known) => known.startsWith(`${first} `))
      if (isGroup || NOT_COMMANDS.includes(first) || first.startsWith('-')) continue
      const name = [3, 2, 1].map((length) => words.slice(0, length).join(' ')).find((each) => commands.has(each))
      const command = name === undefined ? undefined : commands.get(name)
      if (!command) {
        wrong.push(`${path}: outpost ${words.join(' ')}`)
        continue
      }
      count++
      const end = words.indexOf('--')
      const options = words
        .slice(0, end < 0 ? undefined : end)
        .flatMap((word) => /^-{1,2}([a-z][\w-]*)/.exec(word)?.[1] ?? [])
      const unknown = options.filter((option) => !(option in command.options) && !GENERAL_OPTIONS.includes(option))
      wrong.push(...unknown.map((option) => `${path}: outpost ${command.name} has no -${option}`))
    }
  }
  assert.deepEqual(wrong, [])
  assert.ok(count > 150, `${count} command lines`)
})
