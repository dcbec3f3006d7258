/** `outpost operator members remove`. */
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { coreOf, coreOptions, sendRequest } from '../../../core/core-access.ts'
import { defineCommand } from '../../../framework/define-command.ts'
import { UsageError } from '../../../framework/options.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'

export const command = defineCommand({
  name: 'operator members remove',
  summary: 'Remove a lost server from the cluster',
  details: [
    'Removes a lost server that will not return from a highly available core. The other servers then stop keeping commits for it.',
    'A server that still responds is not removed; stop it first. A removed server that starts again joins the',
    'cluster. Requires sudo on sys/ha/members/NAME. Asks for confirmation on a terminal.',
  ].join('\n'),
  options: { ...confirmOptions, ...coreOptions },
  operands: { shown: 'NAME', min: 1, max: 1 },
  async run(values, [name = ''], io) {
    if (name === '' || name.includes('/')) throw new UsageError(`invalid name ${JSON.stringify(name)}`)
    const core = coreOf(values, io)
    await confirm(core, `remove server ${escapeLine(name)} from the cluster`, values.yes, io)
    await sendRequest(core, { method: 'DELETE', path: `sys/ha/members/${name}` })
    io.out(`Success! Removed server ${escapeLine(name)}.\n`)
    return 0
  },
})
