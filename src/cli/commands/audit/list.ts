/** `outpost audit list`. */
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { flag } from '../../framework/options.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { cell, formatOf, formatOption, printAs, wideTable } from '../../core/secret-output.ts'

type Devices = Readonly<Record<string, unknown>>

/** With the exit code that the field's tools have for an empty list. */
const NONE = 2

export const command = defineCommand({
  name: 'audit list',
  summary: 'List the audit devices',
  options: { detailed: flag('With options, the end of the chain and what fails'), ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const { fields } = await requireCore(coreOf(values, io), { path: 'sys/audit' })
    const data = fields.value('data')
    const devices = isJsonObject(data) ? data : {}
    const format = formatOf(values, io)
    if (format === 'table' && Object.keys(devices).length === 0) {
      io.err('No audit devices are enabled.\n')
      return NONE
    }
    printAs(format, devices, io, () => (values.detailed ? details(devices) : overview(devices)))
    return 0
  },
})

function table(header: readonly string[], devices: Devices, row: (device: Answer) => readonly unknown[]): string {
  const paths = Object.keys(devices).toSorted()
  return wideTable(
    header,
    paths.map((path) => [path, ...row(fieldsOf(devices[path]))].map(cell)),
  )
}

function overview(devices: Devices): string {
  return table(['Path', 'Type', 'Description'], devices, (device) => [device.text('type'), descriptionOf(device)])
}

function details(devices: Devices): string {
  return table(['Path', 'Type', 'Description', 'Replication', 'Options', 'Lines', 'Fault'], devices, (device) => [
    device.text('type'),
    descriptionOf(device),
    device.boolean('local') ? 'local' : 'replicated',
    optionsText(device),
    device.under('chain').number('sequence'),
    device.text('fault') || 'n/a',
  ])
}

function descriptionOf(device: Answer): string {
  return device.text('description') || 'n/a'
}

function optionsText(device: Answer): string {
  const options = device.under('options')
  return device
    .names('options')
    .toSorted()
    .map((name) => `${name}=${options.text(name)}`)
    .join(' ')
}
