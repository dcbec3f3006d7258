/** `outpost kv search`. */
import { defineCommand } from '../../framework/define-command.ts'
import { integer, text, texts } from '../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { fieldsOf } from '../../output/json.ts'
import { cell, formatOf, formatOption, printAs, wideTable } from '../../core/secret-output.ts'
import { mountOption, resolveVersionedFolder } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv search',
  summary: 'Search secrets by name and custom metadata',
  details: [
    'Searches the secrets below PATH that the token may read. Values are not searched.',
    '',
    "Example: outpost kv search -name=db -custom-metadata='owner=*' secret/app",
  ].join('\n'),
  options: {
    name: text({
      placeholder: 'TEXT',
      help: 'Part of the name; * matches any characters',
      fallback: undefined,
    }),
    'custom-metadata': texts('KEY=VALUE', 'Filter by custom metadata; * matches any characters'),
    limit: integer({
      placeholder: 'N',
      help: 'Maximum number of results; 0 for all',
      fallback: 0,
      min: 0,
      max: Number.MAX_SAFE_INTEGER,
    }),
    ...mountOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[PATH]', min: 0, max: 1 },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const folder = await resolveVersionedFolder(core, path, values.mount)
    const filter = { name: values.name, custom_metadata: values['custom-metadata'] }
    const results = await search(core, folder.at('search'), filter, values.limit)
    const format = formatOf(values, io)
    if (results.length === 0 && format === 'table') io.err('no matching secret that the token may read\n')
    else printAs(format, results, io, () => table(results, folder.mount))
    return 0
  },
})

interface SearchFilter {
  readonly name: string | undefined
  readonly custom_metadata: readonly string[]
}

async function search(core: CoreAccess, path: string, filter: SearchFilter, limit: number): Promise<unknown[]> {
  const results: unknown[] = []
  for (let after: string | undefined; ; ) {
    const left = limit === 0 ? undefined : limit - results.length
    const query = { ...filter, after, limit: left }
    const { fields } = await requireResponse(core, { path, query })
    const page = fields.under('data')
    const matches = page.value('found')
    if (Array.isArray(matches)) results.push(...(matches as unknown[]))
    const next = page.value('next')
    if (typeof next !== 'string' || (limit > 0 && results.length >= limit)) return results
    after = next
  }
}

function table(results: readonly unknown[], mount: string): string {
  const rows = results.map((each) => {
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
