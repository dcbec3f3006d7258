/** `outpost token renew`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { flag, text, UsageError } from '../../framework/options.ts'
import { type CoreRequest, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'

const DURATION = { placeholder: 'DURATION', fallback: undefined }

export const command = defineCommand({
  name: 'token renew',
  summary: 'Make a token last longer, your own without an argument',
  options: {
    increment: text({ ...DURATION, help: 'For how long from now; what the token allows without it' }),
    i: text({ ...DURATION, help: 'The same as -increment' }),
    accessor: flag('The argument is the accessor of a token'),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    if (values.accessor && given === undefined) throw new UsageError('-accessor needs the accessor as an argument')
    const increment = values.increment ?? values.i
    const request: CoreRequest =
      given === undefined
        ? { method: 'PUT', path: 'auth/token/renew-self', body: { increment } }
        : values.accessor
          ? { method: 'POST', path: 'auth/token/renew-accessor', body: { accessor: given, increment } }
          : { method: 'PUT', path: 'auth/token/renew', body: { token: await typedSecret(given, TOKEN, io), increment } }
    printSecret(await requireCore(coreOf(values, io), request), values, io)
    return 0
  },
})

const TOKEN = { what: 'the token', prompt: 'Token (will be hidden): ' }
