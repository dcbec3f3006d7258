/** `outpost patch`. */
import { defineCommand } from '../framework/define-command.ts'
import { sendRequest, cleanPath, coreOf, coreOptions, MERGE_PATCH, wrapOption } from '../core/core-access.ts'
import { readData } from '../input/data-input.ts'
import { fieldOption, formatOption, printWriteResult } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'patch',
  summary: 'Update parts of the data at a path',
  details: [
    'Other keys do not change. Data is specified as for "outpost write"; null in JSON removes a key.',
    '',
    `Example: echo '{"data":{"old":null}}' | outpost patch secret/data/app -`,
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...wrapOption, ...coreOptions },
  operands: {
    shown: 'PATH KEY=VALUE...',
    min: 2,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [path = '', ...data], io) {
    const at = cleanPath(path)
    const body = await readData(data)
    const answer = await sendRequest(coreOf(values, io), { method: 'PATCH', path: at, body, headers: MERGE_PATCH })
    printWriteResult(answer, `Data patched at: ${at}`, values, io)
    return 0
  },
})
