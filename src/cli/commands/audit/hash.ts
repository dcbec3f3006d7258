/** `outpost audit hash`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'
import { devicePath } from './device-path.ts'

export const command = defineCommand({
  name: 'audit hash',
  summary: 'Show what a value looks like in the lines of an audit device',
  details: 'Example: outpost audit hash -field=hash file - <leaked.txt',
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'PATH [VALUE|-]', min: 1, max: 2, missing: 'of which device? "outpost audit list" lists them' },
  async run(values, [path = '', given], io) {
    const input = await typedSecret(given, { what: 'the value', prompt: 'Value (will be hidden): ' }, io)
    const request = { method: 'PUT', path: `sys/audit-hash/${devicePath(path)}`, body: { input } } as const
    printSecret(await requireCore(coreOf(values, io), request), values, io)
    return 0
  },
})
