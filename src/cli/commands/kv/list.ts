/** `outpost kv list`. */
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { formatOf, formatOption, keysOf, keysTable, printAs, printWarnings } from '../../core/secret-output.ts'
import { kvPlace, mountOption } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv list',
  summary: 'List the names of secrets; folders end with a slash',
  options: { ...mountOption, ...formatOption, ...coreOptions },
  operands: { shown: '[PATH]', min: 0, max: 1, missing: '' },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const place = await kvPlace(core, path, values.mount)
    const at = place.at('metadata')
    const answer = await askCore(core, { path: at, query: { list: true } })
    const keys = answer ? keysOf(answer) : []
    if (!answer || answer.status === 404) throw new CommandError(`no value found at ${at}`)
    const format = formatOf(values, io)
    printAs(format, keys, io, () => keysTable(keys))
    if (format === 'table') printWarnings(answer, io)
    return 0
  },
})
