/** `outpost operator rotate` and `outpost operator key-status`: the key that entries are encrypted with. */
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { askCore, type CoreAccess, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { type Format, formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'operator rotate',
  summary: 'Go over to a new key: what is written from now on is encrypted with it',
  details: [
    'The key shares stay the same, and what was written before stays readable. "outpost operator rekey"',
    'changes the key shares.',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    const format = formatOf(values, io)
    await askCore(core, { method: 'POST', path: 'sys/rotate' })
    if (format === 'table') io.out('Success! The key was rotated.\n\n')
    await show(core, format, io)
    return 0
  },
})

export const keyStatus = defineCommand({
  name: 'operator key-status',
  summary: 'Show which key entries are encrypted with, and since when',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    await show(coreOf(values, io), formatOf(values, io), io)
    return 0
  },
})

async function show(core: CoreAccess, format: Format, io: CommandIo): Promise<void> {
  const { fields } = await requireCore(core, { path: 'sys/key-status' })
  const data = fields.under('data')
  printAs(format, fields.value('data'), io, () =>
    pairsTable([
      ['Key Term', data.value('term')],
      ['Install Time', data.value('install_time')],
      ['Encryption Count', data.value('encryptions')],
    ]),
  )
}
