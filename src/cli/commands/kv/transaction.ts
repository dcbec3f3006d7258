/** `outpost kv transaction`. */
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { text, UsageError } from '../../framework/options.ts'
import { coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { fieldsOf, isJsonObject } from '../../output/json.ts'
import { cell, formatOf, formatOption, printSecret, printWarnings, wideTable } from '../../core/secret-output.ts'
import { textOf } from '../../input/data-input.ts'
import { parseJsonFile, sourceName } from './json-file.ts'
import { resolveVersionedFolder } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv transaction',
  summary: 'Change several secrets atomically',
  details: [
    'The file contains {"operations": [...]}, or the list alone. Each operation has "op" (put, patch, delete,',
    'undelete, destroy, remove, check) and "path" (below the mount); put and patch have "data"; delete,',
    'undelete and destroy have "versions". An operation with "cas" requires that its value is the current',
    'version; "check" has no other effect. If one operation fails, nothing is changed.',
    '',
    'Example: outpost kv transaction -mount=secret @changes.json',
  ].join('\n'),
  options: {
    mount: text({ placeholder: 'PATH', help: 'Mount path', fallback: 'secret' }),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '@FILE|-', min: 1, max: 1 },
  async run(values, [given = ''], io) {
    if (given !== '-' && !given.startsWith('@')) {
      throw new UsageError(`expected @FILE or -, got ${JSON.stringify(given)}`)
    }
    const file = given === '-' ? '-' : given.slice(1)
    const operations = operationsIn(await textOf(file), file)
    const core = coreOf(values, io)
    const folder = await resolveVersionedFolder(core, '', values.mount)
    const request = { method: 'POST', path: folder.at('transaction'), body: { operations } } as const
    const answer = await requireResponse(core, request)
    if (formatOf(values, io) !== 'table') {
      printSecret(answer, values, io)
      return 0
    }
    const results = answer.fields.under('data').list('results')
    const rows = operations.map((operation, at) => {
      const version = results[at]?.number('version') ?? 0
      const { op, path } = { op: fieldsOf(operation).text('op'), path: fieldsOf(operation).text('path') }
      return [op, cell(`${folder.mount}/${path}`), version > 0 ? String(version) : '']
    })
    io.out(wideTable(['Operation', 'Path', 'Version'], rows))
    printWarnings(answer, io)
    return 0
  },
})

/** Throws CommandError. The server validates the operations. */
function operationsIn(content: string, file: string): readonly unknown[] {
  const value = parseJsonFile(content, file)
  const operations = isJsonObject(value) ? value['operations'] : value
  if (Array.isArray(operations)) return operations as unknown[]
  throw new CommandError(`${sourceName(file)} does not contain {"operations": [...]}`)
}
