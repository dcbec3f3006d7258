/** `outpost token lookup`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { flag, UsageError } from '../../framework/options.ts'
import { type CoreRequest, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'

export const command = defineCommand({
  name: 'token lookup',
  summary: 'Show what is known of a token, of your own without an argument',
  options: {
    accessor: flag('The argument is the accessor of a token'),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    if (values.accessor && given === undefined) throw new UsageError('-accessor needs the accessor as an argument')
    const request: CoreRequest =
      given === undefined
        ? { path: 'auth/token/lookup-self' }
        : values.accessor
          ? { method: 'POST', path: 'auth/token/lookup-accessor', body: { accessor: given } }
          : { method: 'POST', path: 'auth/token/lookup', body: { token: await typedSecret(given, TOKEN, io) } }
    printSecret(await requireCore(coreOf(values, io), request), values, io)
    return 0
  },
})

const TOKEN = { what: 'the token', prompt: 'Token (will be hidden): ' }
