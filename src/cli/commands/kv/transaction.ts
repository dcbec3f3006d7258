/** `outpost kv transaction`. */
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { text, UsageError } from '../../framework/options.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldsOf } from '../../output/answer.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { cell, formatOf, formatOption, printSecret, printWarnings, wideTable } from '../../core/secret-output.ts'
import { textOf } from '../../input/data-input.ts'
import { jsonIn } from './json-file.ts'
import { versionedFolder } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv transaction',
  summary: 'Change several secrets, all of them or none',
  details: [
    'The file holds {"operations": [...]}, or the list alone. Each operation has "op" (put, patch,',
    'delete, undelete, destroy, remove, check) and "path", which is below the mount; "data" for put and',
    'patch, "versions" for delete, undelete and destroy. "cas" in any of them is the version that must be',
    'the current one; check is nothing but that.',
    '',
    'Example: outpost kv transaction -mount=secret @changes.json',
  ].join('\n'),
  options: {
    mount: text({ placeholder: 'PATH', help: 'Mount of the store', fallback: 'secret' }),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '@FILE|-', min: 1, max: 1, missing: 'which operations? give @FILE, or - for standard input' },
  async run(values, [given = ''], io) {
    if (given !== '-' && !given.startsWith('@')) {
      throw new UsageError(`operations come from a file, as in @${given}, or - for standard input`)
    }
    const file = given === '-' ? '-' : given.slice(1)
    const operations = operationsIn(await textOf(file), file)
    const core = coreOf(values, io)
    const place = await versionedFolder(core, '', values.mount)
    const request = { method: 'POST', path: place.at('transaction'), body: { operations } } as const
    const answer = await requireCore(core, request)
    if (formatOf(values, io) !== 'table') {
      printSecret(answer, values, io)
      return 0
    }
    const results = answer.fields.under('data').list('results')
    const rows = operations.map((operation, at) => {
      const version = results[at]?.number('version') ?? 0
      const { op, path } = { op: fieldsOf(operation).text('op'), path: fieldsOf(operation).text('path') }
      return [op, cell(`${place.mount}/${path}`), version > 0 ? String(version) : '']
    })
    io.out(wideTable(['Operation', 'Path', 'Version'], rows))
    printWarnings(answer, io)
    return 0
  },
})

/** Throws CommandError; what the operations are is the server's to judge. */
function operationsIn(content: string, file: string): readonly unknown[] {
  const value = jsonIn(content, file)
  const operations = isJsonObject(value) ? value['operations'] : value
  if (Array.isArray(operations)) return operations as unknown[]
  throw new CommandError(`${file === '-' ? 'standard input' : file} holds no {"operations": [...]}`)
}
