/** `outpost lease count`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { cell, formatOf, formatOption, printAs, wideTable } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'lease count',
  summary: 'Count the leases that cannot be taken back, by mount',
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const request = { path: 'sys/leases/count', query: { type: 'irrevocable' } }
    const { fields } = await requireCore(coreOf(values, io), request)
    const data = fields.under('data')
    const counts = data.under('counts')
    const mounts = data.names('counts').toSorted()
    printAs(formatOf(values, io), fields.value('data'), io, () =>
      wideTable(
        ['Mount', 'Irrevocable leases'],
        [
          ...mounts.map((mount) => [cell(mount), cell(counts.number(mount))]),
          ['all', cell(data.number('lease_count'))],
        ],
      ),
    )
    return 0
  },
})
