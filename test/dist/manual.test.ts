import assert from 'node:assert/strict'
import { test } from 'node:test'
import { COMMAND_NAMES, loadCommands } from '../../src/cli/command-table.ts'
import { manualPages } from '../../scripts/dist/manual.ts'

test('each command has a manual page with its summary and all of its options', async () => {
  const pages = new Map(
    (await manualPages('man1', '1.2.3', 1_790_000_000)).map((entry) => [
      entry.path,
      entry.type === 'file' ? entry.content.toString() : '',
    ]),
  )
  assert.equal(pages.size, COMMAND_NAMES.length + 1)
  const overview = pages.get('man1/outpost.1') ?? ''
  assert.match(overview, /^\.TH "OUTPOST" 1 "2026\\-09\\-21" "outpost 1\.2\.3" "outpost manual"$/m)
  for (const command of await loadCommands(COMMAND_NAMES)) {
    const name = `outpost-${command.name.replaceAll(' ', '-')}`
    const page = pages.get(`man1/${name}.1`) ?? ''
    assert.ok(page.includes(`${name} \\- ${command.summary}`.replaceAll(/(?<=\w)-(?=\w)/g, '\\-')), name)
    for (const option of Object.keys(command.options)) {
      assert.ok(page.includes(`.BI \\-${option.replaceAll('-', '\\-')}`), `${name} -${option}`)
    }
    assert.ok(overview.includes(name.replaceAll('-', '\\-')), name)
    // A line that begins with a dot is a request to the formatter.
    const requests = page.split('\n').filter((line) => line.startsWith('.') || line.startsWith("'"))
    assert.deepEqual(
      requests.filter((line) => !/^\.(?:TH|SH|SS|B|BI|BR|I|TP|PP|nf|fi)\b/.test(line)),
      [],
      name,
    )
  }
})
