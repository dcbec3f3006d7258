/** `outpost list`. */
import { CommandError, defineCommand } from '../framework/define-command.ts'
import { sendRequest, cleanPath, coreOf, coreOptions, wrapOption } from '../core/core-access.ts'
import { readPairs } from '../input/data-input.ts'
import {
  formatOf,
  formatOption,
  keysOf,
  keysTable,
  printAs,
  printSecret,
  printWarnings,
} from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'list',
  summary: 'List the names below a path',
  details: ['Names that end with a slash are folders.', '', 'Example: outpost list auth/token/accessors'].join('\n'),
  options: { ...formatOption, ...wrapOption, ...coreOptions },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [path = '', ...parameters], io) {
    const at = cleanPath(path)
    const query = { list: true, ...readPairs(parameters) }
    const answer = await sendRequest(coreOf(values, io), { path: at, query })
    if (!answer) throw new CommandError(`no value found at ${at}`)
    if (answer.fields.value('wrap_info')) {
      printSecret(answer, values, io)
      return 0
    }
    const keys = keysOf(answer)
    if (keys.length === 0 && answer.status === 404) throw new CommandError(`no value found at ${at}`)
    const format = formatOf(values, io)
    printAs(format, keys, io, () => keysTable(keys))
    if (format === 'table') printWarnings(answer, io)
    return 0
  },
})
