/** `outpost delete`. */
import { defineCommand } from '../framework/define-command.ts'
import { sendRequest, cleanPath, coreOf, coreOptions } from '../core/core-access.ts'
import { readPairs } from '../input/data-input.ts'
import { formatOption, printWriteResult } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'delete',
  summary: 'Delete the data at a path',
  details: [
    'The effect depends on the engine. For a versioned secret (secret/data/...), the latest version is marked',
    'as deleted; "outpost kv undelete" restores it.',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [path = '', ...parameters], io) {
    const at = cleanPath(path)
    const query = readPairs(parameters)
    const answer = await sendRequest(coreOf(values, io), { method: 'DELETE', path: at, query })
    printWriteResult(answer, `Data deleted (if it existed) at: ${at}`, values, io)
    return 0
  },
})
