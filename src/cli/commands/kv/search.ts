/** `outpost kv search`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { integer, text, texts } from '../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldsOf } from '../../output/answer.ts'
import { cell, formatOf, formatOption, printAs, wideTable } from '../../core/secret-output.ts'
import { mountOption, versionedFolder } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv search',
  summary: 'Find secrets by a part of their name and by their custom metadata',
  details: [
    'Below PATH, among those that the token may read. What is in the secrets is not searched.',
    '',
    "Example: outpost kv search -name=db -custom-metadata='owner=*' secret/app",
  ].join('\n'),
  options: {
    name: text({
      placeholder: 'TEXT',
      help: 'A part of the name in any case; * stands for any characters',
      fallback: undefined,
    }),
    'custom-metadata': texts('KEY=VALUE', 'A text that is kept with the secret; * stands for any characters'),
    limit: integer({
      placeholder: 'N',
      help: 'Find at most so many; 0 for all',
      fallback: 0,
      min: 0,
      max: Number.MAX_SAFE_INTEGER,
    }),
    ...mountOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[PATH]', min: 0, max: 1, missing: '' },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const place = await versionedFolder(core, path, values.mount)
    const question = { name: values.name, custom_metadata: values['custom-metadata'] }
    const found = await search(core, place.at('search'), question, values.limit)
    const format = formatOf(values, io)
    if (found.length === 0 && format === 'table') io.err('no secret is like that, or the token may not read it\n')
    else printAs(format, found, io, () => table(found, place.mount))
    return 0
  },
})

interface Question {
  readonly name: string | undefined
  readonly custom_metadata: readonly string[]
}

/** Page after page. */
async function search(core: CoreAccess, path: string, question: Question, limit: number): Promise<unknown[]> {
  const found: unknown[] = []
  for (let after: string | undefined; ; ) {
    const left = limit === 0 ? undefined : limit - found.length
    const query = { ...question, after, limit: left }
    const { fields } = await requireCore(core, { path, query })
    const page = fields.under('data')
    const those = page.value('found')
    if (Array.isArray(those)) found.push(...(those as unknown[]))
    const next = page.value('next')
    if (typeof next !== 'string' || (limit > 0 && found.length >= limit)) return found
    after = next
  }
}

function table(found: readonly unknown[], mount: string): string {
  const rows = found.map((each) => {
    const secret = fieldsOf(each)
    const custom = Object.entries(secret.value('custom_metadata') ?? {}).map(([key, value]) => `${key}=${value}`)
    return [
      cell(`${mount}/${secret.text('path')}`),
      String(secret.number('current_version')),
      secret.boolean('deleted') ? 'deleted' : '',
      cell(custom.join(' ')),
    ]
  })
  return wideTable(['Path', 'Version', 'State', 'Custom Metadata'], rows)
}
