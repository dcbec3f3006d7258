/** `outpost patch`. */
import { defineCommand } from '../framework/command-shape.ts'
import { askCore, cleanPath, coreOf, coreOptions, MERGE_PATCH, wrapOption } from '../core/core-access.ts'
import { readData } from '../input/data-input.ts'
import { fieldOption, formatOption, printWritten } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'patch',
  summary: 'Change parts of what is at a path of the secrets core',
  details: [
    'What is not named stays as it is. Data is given as to "outpost write"; null in JSON removes a',
    'member.',
    '',
    `Example: echo '{"data":{"old":null}}' | outpost patch secret/data/app -`,
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...wrapOption, ...coreOptions },
  operands: {
    shown: 'PATH KEY=VALUE...',
    min: 2,
    max: Number.POSITIVE_INFINITY,
    missing: 'what shall change? as in: outpost patch PATH KEY=VALUE',
  },
  async run(values, [path = '', ...data], io) {
    const at = cleanPath(path)
    const body = await readData(data)
    const answer = await askCore(coreOf(values, io), { method: 'PATCH', path: at, body, headers: MERGE_PATCH })
    printWritten(answer, `Data patched at: ${at}`, values, io)
    return 0
  },
})
