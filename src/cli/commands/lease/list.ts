/** `outpost lease list`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { askCore, cleanPath, coreOf, coreOptions } from '../../core/core-access.ts'
import { formatOf, formatOption, keysOf, keysTable, printAs } from '../../core/secret-output.ts'

/** With the exit code that the field's tools have for an empty list. */
const NONE = 2

export const command = defineCommand({
  name: 'lease list',
  summary: 'List the leases below a prefix',
  details: 'Example: outpost lease list database/creds/app',
  options: { ...formatOption, ...coreOptions },
  operands: { shown: '[PREFIX]', min: 0, max: 1, missing: '' },
  async run(values, [prefix], io) {
    const path = prefix === undefined ? 'sys/leases/lookup' : `sys/leases/lookup/${cleanPath(prefix)}`
    const answer = await askCore(coreOf(values, io), { path, query: { list: 'true' } })
    const keys = answer ? keysOf(answer) : []
    const format = formatOf(values, io)
    if (keys.length === 0 && format === 'table') {
      io.err('There are no leases there.\n')
      return NONE
    }
    printAs(format, keys, io, () => keysTable(keys))
    return 0
  },
})
