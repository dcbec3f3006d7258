/** `outpost policy read`. */
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { bare, formatOf, formatOption, printAs } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'policy read',
  summary: 'Print a policy',
  details: 'As it was written, so that it can be edited and written again.',
  options: { ...formatOption, ...coreOptions },
  operands: { shown: 'NAME', min: 1, max: 1, missing: 'which policy? "outpost policy list" lists them' },
  async run(values, [name = ''], io) {
    const answer = await askCore(coreOf(values, io), { path: `sys/policies/acl/${name.trim().toLowerCase()}` })
    if (!answer) throw new CommandError(`no policy named ${JSON.stringify(name)}, "outpost policy list" lists them`)
    const text = answer.fields.under('data').text('policy')
    printAs(formatOf(values, io), { policy: text }, io, () =>
      bare(text === '' || text.endsWith('\n') ? text : `${text}\n`),
    )
    return 0
  },
})
