/** `outpost kv diff`. */
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { flag, integer } from '../../framework/options.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { cell, fieldOption, formatOf, formatOption, printSecret, wideTable } from '../../core/secret-output.ts'
import { MISSING_PATH, mountOption, versionedPlace } from './secret-path.ts'

const version = (help: string) => integer({ placeholder: 'N', help, fallback: 0, min: 0, max: Number.MAX_SAFE_INTEGER })

export const command = defineCommand({
  name: 'kv diff',
  summary: 'Show which keys two versions of a secret have in different ways',
  details: [
    'Without -from and -to it is the newest version and the one before. Keys of objects in objects are',
    'shown with slashes. Values are shown only with -values.',
    '',
    'Example: outpost kv diff -from=1 -to=3 secret/app/db',
  ].join('\n'),
  options: {
    from: version('The earlier version; 0 for the one before the other'),
    to: version('The later version; 0 for the newest'),
    values: flag('Show the values, too'),
    ...mountOption,
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: 'PATH', min: 1, max: 1, missing: MISSING_PATH },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const at = (await versionedPlace(core, path, values.mount)).at('diff')
    const query = { from: values.from, to: values.to, values: values.values || undefined }
    const answer = await askCore(core, { path: at, query })
    if (!answer) throw new CommandError(`no value found at ${at}`)
    if (values.field !== undefined || formatOf(values, io) !== 'table') {
      printSecret(answer, values, io)
      return 0
    }
    const data = answer.fields.under('data')
    const changes = data.list('changes')
    const versions = `versions ${data.number('from')} and ${data.number('to')}`
    if (changes.length === 0) {
      io.err(`${versions} are the same\n`)
      return 0
    }
    const rows = changes.map((change) => [
      change.text('change'),
      cell(change.text('key').replace(/^\//, '')),
      ...(values.values ? [shown(change.value('before')), shown(change.value('after'))] : []),
    ])
    io.out(wideTable(['Change', 'Key', ...(values.values ? ['Before', 'After'] : [])], rows))
    return 0
  },
})

/** A side that has no such key shows nothing. */
function shown(value: unknown): string {
  return value === undefined ? '' : cell(value)
}
