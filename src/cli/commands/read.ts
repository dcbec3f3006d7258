/** `outpost read`. */
import { CommandError, defineCommand } from '../framework/define-command.ts'
import { sendRequest, cleanPath, coreOf, coreOptions, wrapOption } from '../core/core-access.ts'
import { readPairs } from '../input/data-input.ts'
import { isJsonObject } from '../output/json.ts'
import { fieldOption, formatOption, printSecret, printWarnings } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'read',
  summary: 'Read the data at a path',
  details: [
    'Reads any path of the secrets API, such as a secret, a setting or a status. KEY=VALUE are request',
    'parameters. For KV secrets, use "outpost kv get".',
    '',
    'Example: outpost read -field=ttl auth/token/lookup-self',
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...wrapOption, ...coreOptions },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [path = '', ...parameters], io) {
    const at = cleanPath(path)
    const answer = await sendRequest(coreOf(values, io), { path: at, query: readPairs(parameters) })
    if (!answer) throw new CommandError(`no value found at ${at}`)
    if (answer.status === 404 && !isJsonObject(answer.fields.value('data'))) {
      printWarnings(answer, io)
      throw new CommandError(`no value found at ${at}`)
    }
    printSecret(answer, values, io)
    return 0
  },
})
