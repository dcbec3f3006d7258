/** `outpost kv enable-versioning`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { askCore, cleanPath, coreOf, coreOptions } from '../../core/core-access.ts'
import { printWarnings } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'kv enable-versioning',
  summary: 'Make a store of secrets one that keeps versions',
  details: 'What is in it becomes the first version of each secret. There is no way back.',
  options: { ...coreOptions },
  operands: { shown: 'MOUNT', min: 1, max: 1, missing: 'which store? "outpost secrets list" lists them' },
  async run(values, [mount = ''], io) {
    const at = cleanPath(mount)
    const request = { method: 'POST', path: `sys/mounts/${at}/tune`, body: { options: { version: '2' } } } as const
    const answer = await askCore(coreOf(values, io), request)
    io.out(`Success! Tuned the secret engine at: ${at}/\n`)
    if (answer) printWarnings(answer, io)
    return 0
  },
})
