/** `outpost token capabilities`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { cell, formatOf, formatOption, printAs } from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'

export const command = defineCommand({
  name: 'token capabilities',
  summary: 'Show what a token may do at a path, your own without a token',
  details: 'Example: outpost token capabilities secret/data/app',
  options: { ...formatOption, ...coreOptions },
  operands: {
    shown: '[TOKEN|@FILE|-] PATH',
    min: 1,
    max: 2,
    missing: 'which path? as in: outpost token capabilities PATH',
  },
  async run(values, operands, io) {
    const path = operands.at(-1) ?? ''
    const core = coreOf(values, io)
    const request = { method: 'POST' } as const
    const wanted = { what: 'the token', prompt: 'Token (will be hidden): ' }
    const answer =
      operands.length === 1
        ? await requireCore(core, { ...request, path: 'sys/capabilities-self', body: { path } })
        : await requireCore(core, {
            ...request,
            path: 'sys/capabilities',
            body: { token: await typedSecret(operands[0], wanted, io), path },
          })
    const found = answer.fields.under('data').value('capabilities')
    const capabilities = Array.isArray(found) ? found.map(cell).toSorted() : []
    printAs(formatOf(values, io), capabilities, io, () => `${capabilities.join(', ')}\n`)
    return 0
  },
})
