/** `outpost audit list|enable|disable|hash|acknowledge`. */
import { sendRequest, cleanPath, coreOf, coreOptions, requireResponse } from '../core/core-access.ts'
import { cell, fieldOption, formatOf, formatOption, printAs, printSecret, wideTable } from '../core/secret-output.ts'
import { defineCommand } from '../framework/define-command.ts'
import { flag, text } from '../framework/options.ts'
import { readPairs } from '../input/data-input.ts'
import { OPERANDS_MAX, readSecret, secretOperand } from '../input/secret-input.ts'
import { type JsonFields, fieldsOf, isJsonObject } from '../output/json.ts'

type Devices = Readonly<Record<string, unknown>>

/** Exit code of `vault audit list` for an empty list. */
const EMPTY_LIST = 2

const list = defineCommand({
  name: 'audit list',
  summary: 'List audit devices',
  options: { detailed: flag('Show options and state of the audit chain'), ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const { fields } = await requireResponse(coreOf(values, io), { path: 'sys/audit' })
    const data = fields.value('data')
    const devices = isJsonObject(data) ? data : {}
    const format = formatOf(values, io)
    if (format === 'table' && Object.keys(devices).length === 0) {
      io.err('No audit devices are enabled.\n')
      return EMPTY_LIST
    }
    printAs(format, devices, io, () => (values.detailed ? details(devices) : overview(devices)))
    return 0
  },
})

function table(header: readonly string[], devices: Devices, row: (device: JsonFields) => readonly unknown[]): string {
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

function descriptionOf(device: JsonFields): string {
  return device.text('description') || 'n/a'
}

function optionsText(device: JsonFields): string {
  const options = device.under('options')
  return device
    .names('options')
    .toSorted()
    .map((name) => `${name}=${options.text(name)}`)
    .join(' ')
}

const enable = defineCommand({
  name: 'audit enable',
  summary: 'Enable an audit device',
  details: [
    'The server refuses a request that no device can record. TYPE is file or socket. Options of a file',
    'device: file_path, mode. Options of a socket device: address, socket_type (tcp, udp, unix), write_timeout.',
    'Options of both: log_raw, hmac_accessor, elide_list_responses, prefix.',
    '',
    'Example: outpost audit enable file file_path=/var/log/outpost/audit.log',
  ].join('\n'),
  options: {
    path: text({ placeholder: 'PATH', help: 'Path of the device instead of the type', fallback: undefined }),
    description: text({ placeholder: 'TEXT', help: 'Description', fallback: undefined }),
    local: flag('Exclude the device from replication'),
    ...coreOptions,
  },
  operands: { shown: 'TYPE [KEY=VALUE...]', min: 1, max: Infinity },
  async run(values, [type = '', ...pairs], io) {
    const at = devicePath(values.path ?? type)
    const { description = '', local } = values
    const body = { type, description, local, options: readPairs(pairs) }
    await sendRequest(coreOf(values, io), { method: 'PUT', path: `sys/audit/${at}`, body })
    io.out(`Success! Enabled the ${type} audit device at: ${at}\n`)
    return 0
  },
})

const disable = defineCommand({
  name: 'audit disable',
  summary: 'Disable an audit device',
  details: 'Deletes the HMAC key of the device: "outpost audit hash" can no longer compute the HMACs in its files.',
  options: { ...coreOptions },
  operands: { shown: 'PATH', min: 1, max: 1 },
  async run(values, [path = ''], io) {
    const at = devicePath(path)
    await sendRequest(coreOf(values, io), { method: 'DELETE', path: `sys/audit/${at}` })
    io.out(`Success! Disabled audit device (if it was enabled) at: ${at}\n`)
    return 0
  },
})

const hash = defineCommand({
  name: 'audit hash',
  summary: 'Hash a value with the key of an audit device',
  details: 'Example: outpost audit hash -field=hash file - <leaked.txt',
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'PATH [@FILE|-]', min: 1, max: OPERANDS_MAX },
  async run(values, [path = '', ...operands], io) {
    const given = secretOperand(operands, 'value')
    const input = await readSecret(given, { what: 'value', prompt: 'Value (will be hidden): ' }, io)
    const request = { method: 'PUT', path: `sys/audit-hash/${devicePath(path)}`, body: { input } } as const
    printSecret(await requireResponse(coreOf(values, io), request), values, io)
    return 0
  },
})

const acknowledge = defineCommand({
  name: 'audit acknowledge',
  summary: 'Acknowledge a broken audit chain',
  details: [
    'The chain is broken if another program changed the file of the device. First investigate with "outpost',
    'audit verify -path=DEVICE FILE..." and keep the files. After the acknowledgement, the server is ready',
    'again; the line that records the break stays in the file.',
  ].join('\n'),
  options: { ...coreOptions },
  operands: { shown: 'PATH', min: 1, max: 1 },
  async run(values, [path = ''], io) {
    const at = devicePath(path)
    await sendRequest(coreOf(values, io), { method: 'PUT', path: `sys/audit-acknowledge/${at}` })
    io.out(`Success! Acknowledged the broken chain of the audit device at: ${at}\n`)
    return 0
  },
})

/** The path of a device with one slash at its end. Throws UsageError. */
function devicePath(given: string): string {
  return `${cleanPath(given)}/`
}

export const commands = [list, enable, disable, hash, acknowledge]
