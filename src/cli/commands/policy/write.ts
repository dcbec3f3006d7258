/** `outpost policy write`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { textOf } from '../../input/data-input.ts'
import { formatOption, printWritten } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'policy write',
  summary: 'Write a policy from a file',
  details: [
    'What is wrong with it is told with line and column, and nothing is changed then. "outpost policy',
    'check" says beforehand what it allows.',
    '',
    'Example: outpost policy write app app.hcl',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  operands: { shown: 'NAME FILE|-', min: 2, max: 2, missing: 'give a name and a file, or - for standard input' },
  async run(values, [name = '', file = ''], io) {
    const body = { policy: await textOf(file) }
    const path = `sys/policies/acl/${name.trim().toLowerCase()}`
    const answer = await askCore(coreOf(values, io), { method: 'PUT', path, body })
    printWritten(answer, `The policy ${name.trim().toLowerCase()} is written.`, values, io)
    return 0
  },
})
