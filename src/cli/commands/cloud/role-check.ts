/** `outpost cloud role check`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { text } from '../../framework/options.ts'
import { cleanPath, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { cell, formatOf, formatOption, printSecret } from '../../core/secret-output.ts'

export const cloudMountOption = {
  mount: text({ placeholder: 'PATH', help: 'Where the engine is mounted', fallback: 'cloud' }),
}

const FAILED = 1

export const command = defineCommand({
  name: 'cloud role check',
  summary: 'Say whether a role can give credentials of AWS, without getting any',
  details: [
    'A line for each thing that was looked at: ok, failed, or unknown where it could not be seen. The',
    'exit code is 1 where something failed.',
  ].join('\n'),
  options: { ...cloudMountOption, ...formatOption, ...coreOptions },
  operands: { shown: 'ROLE', min: 1, max: 1, missing: 'which role? "outpost list cloud/roles" shows them' },
  async run(values, [role = ''], io) {
    const path = cleanPath(`${values.mount}/roles/${role}/check`)
    const answer = await requireCore(coreOf(values, io), { path })
    const data = answer.fields.under('data')
    if (formatOf(values, io) === 'table') {
      const findings = data.value('findings')
      for (const line of Array.isArray(findings) ? findings : []) io.out(`${cell(line)}\n`)
    } else printSecret(answer, values, io)
    return data.text('result') === 'failed' ? FAILED : 0
  },
})
