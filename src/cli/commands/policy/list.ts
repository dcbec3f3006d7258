/** `outpost policy list`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { cell, formatOf, formatOption, keysOf, printAs } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'policy list',
  summary: 'List the names of the policies',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const answer = await askCore(coreOf(values, io), { path: 'sys/policies/acl', query: { list: true } })
    const keys = answer ? keysOf(answer) : []
    printAs(formatOf(values, io), keys, io, () => keys.map((key) => `${cell(key)}\n`).join(''))
    return 0
  },
})
