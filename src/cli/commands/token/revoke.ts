/** `outpost token revoke`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { choice, flag, UsageError } from '../../framework/options.ts'
import { askCore, type CoreRequest, coreOf, coreOptions } from '../../core/core-access.ts'
import { formatOption, printWritten } from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'

export const command = defineCommand({
  name: 'token revoke',
  summary: 'End a token, and those that were made with it',
  details: 'With -mode=orphan the ones that were made with it live on; that needs sudo.',
  options: {
    self: flag('Your own'),
    accessor: flag('The argument is the accessor of a token'),
    mode: choice({ placeholder: 'MODE', help: 'What else ends', choices: ['orphan'] }),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    if (values.self && given !== undefined) throw new UsageError('-self takes no token')
    if (values.self && values.accessor) throw new UsageError('-self and -accessor do not go together')
    if (values.mode && (values.self || values.accessor)) throw new UsageError(`-mode=${values.mode} needs a token`)
    if (values.accessor && given === undefined) throw new UsageError('-accessor needs the accessor as an argument')
    const answer = await askCore(coreOf(values, io), await requestOf(values, given, io))
    printWritten(answer, 'The token is revoked (if it existed).', values, io)
    return 0
  },
})

type Io = Parameters<typeof typedSecret>[2]

async function requestOf(
  values: { readonly self: boolean; readonly accessor: boolean; readonly mode: 'orphan' | undefined },
  given: string | undefined,
  io: Io,
): Promise<CoreRequest> {
  if (values.self) return { method: 'PUT', path: 'auth/token/revoke-self' }
  if (values.accessor) return { method: 'POST', path: 'auth/token/revoke-accessor', body: { accessor: given } }
  const token = await typedSecret(given, { what: 'the token', prompt: 'Token (will be hidden): ' }, io)
  const path = values.mode === 'orphan' ? 'auth/token/revoke-orphan' : 'auth/token/revoke'
  return { method: 'PUT', path, body: { token } }
}
