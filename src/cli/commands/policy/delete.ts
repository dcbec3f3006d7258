/** `outpost policy delete`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { formatOption, printWritten } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'policy delete',
  summary: 'Delete a policy',
  details: 'Tokens that have it lose at once what it allowed.',
  options: { ...formatOption, ...coreOptions },
  operands: { shown: 'NAME', min: 1, max: 1, missing: 'which policy? "outpost policy list" lists them' },
  async run(values, [name = ''], io) {
    const path = `sys/policies/acl/${name.trim().toLowerCase()}`
    const answer = await askCore(coreOf(values, io), { method: 'DELETE', path })
    printWritten(answer, `The policy ${name.trim().toLowerCase()} is deleted (if it existed).`, values, io)
    return 0
  },
})
