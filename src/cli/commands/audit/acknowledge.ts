/** `outpost audit acknowledge`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { devicePath } from './device-path.ts'

export const command = defineCommand({
  name: 'audit acknowledge',
  summary: 'Acknowledge a broken audit chain',
  details: [
    'Another program has changed the file of the device. First find out what was changed (outpost',
    'audit verify -path=DEVICE FILE...) and keep the files. Afterwards the server is ready again; the',
    'line that states the break stays in the file.',
  ].join('\n'),
  options: { ...coreOptions },
  operands: { shown: 'PATH', min: 1, max: 1, missing: 'missing device, "outpost audit list" lists them' },
  async run(values, [path = ''], io) {
    const at = devicePath(path)
    await askCore(coreOf(values, io), { method: 'PUT', path: `sys/audit-acknowledge/${at}` })
    io.out(`Success! Acknowledged the broken chain of the audit device at: ${at}\n`)
    return 0
  },
})
