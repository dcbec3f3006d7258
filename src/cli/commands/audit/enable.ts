/** `outpost audit enable`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { flag, text } from '../../framework/options.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { readPairs } from '../../input/data-input.ts'
import { devicePath } from './device-path.ts'

export const command = defineCommand({
  name: 'audit enable',
  summary: 'Record every request in a file, or send it to a socket',
  details: [
    'From then on a request that no device records is refused. Options of a device',
    'are given as KEY=VALUE: file_path and mode of a file; address, socket_type',
    '(tcp, udp, unix) and write_timeout of a socket; log_raw, hmac_accessor,',
    'elide_list_responses and prefix of both.',
    '',
    'Example: outpost audit enable file file_path=/var/log/outpost/audit.log',
  ].join('\n'),
  options: {
    path: text({ placeholder: 'PATH', help: 'Where it is to be, when that is not its type', fallback: undefined }),
    description: text({ placeholder: 'TEXT', help: 'What it is for, for people', fallback: undefined }),
    local: flag('Leave it out of replication between clusters'),
    ...coreOptions,
  },
  operands: { shown: 'TYPE [KEY=VALUE...]', min: 1, max: Infinity, missing: 'which type? file or socket' },
  async run(values, [type = '', ...pairs], io) {
    const at = devicePath(values.path ?? type)
    const { description = '', local } = values
    const body = { type, description, local, options: readPairs(pairs, 'an option of the device') }
    await askCore(coreOf(values, io), { method: 'PUT', path: `sys/audit/${at}`, body })
    io.out(`Success! Enabled the ${type} audit device at: ${at}\n`)
    return 0
  },
})
