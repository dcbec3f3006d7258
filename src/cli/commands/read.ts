/** `outpost read`. */
import { CommandError, defineCommand } from '../framework/command-shape.ts'
import { askCore, cleanPath, coreOf, coreOptions, wrapOption } from '../core/core-access.ts'
import { readPairs } from '../input/data-input.ts'
import { isJsonObject } from '../output/exact-json.ts'
import { fieldOption, formatOption, printSecret, printWarnings } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'read',
  summary: 'Read what is at a path of the secrets core',
  details: [
    'Any path may be read: a secret, a setting, a status. KEY=VALUE are parameters of the request.',
    'Versioned secrets are easier to read with "outpost kv get".',
    '',
    'Example: outpost read -field=ttl auth/token/lookup-self',
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...wrapOption, ...coreOptions },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
    missing: 'which path? as in: outpost read auth/token/lookup-self',
  },
  async run(values, [path = '', ...parameters], io) {
    const at = cleanPath(path)
    const answer = await askCore(coreOf(values, io), { path: at, query: readPairs(parameters, 'a parameter') })
    if (!answer) throw new CommandError(`no value found at ${at}`)
    if (answer.status === 404 && !isJsonObject(answer.fields.value('data'))) {
      printWarnings(answer, io)
      throw new CommandError(`no value found at ${at}`)
    }
    printSecret(answer, values, io)
    return 0
  },
})
