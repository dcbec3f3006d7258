/** `outpost audit disable`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { devicePath } from './device-path.ts'

export const command = defineCommand({
  name: 'audit disable',
  summary: 'Disable an audit device',
  details: `Its key goes with it: values can no longer be found in its files by their HMAC (outpost audit hash).`,
  options: { ...coreOptions },
  operands: { shown: 'PATH', min: 1, max: 1, missing: 'which one? "outpost audit list" lists them' },
  async run(values, [path = ''], io) {
    const at = devicePath(path)
    await askCore(coreOf(values, io), { method: 'DELETE', path: `sys/audit/${at}` })
    io.out(`Success! Disabled audit device (if it was enabled) at: ${at}\n`)
    return 0
  },
})
