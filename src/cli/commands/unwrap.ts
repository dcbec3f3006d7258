/** `outpost unwrap`: the response that a wrapping token holds. */
import { CommandError, defineCommand } from '../framework/define-command.ts'
import { UsageError } from '../framework/options.ts'
import { sendRequest, coreOf, coreOptions } from '../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../core/secret-output.ts'
import { readSecret } from '../input/secret-input.ts'

export const command = defineCommand({
  name: 'unwrap',
  summary: 'Unwrap a wrapped response',
  details: [
    'Prompts for the wrapping token without echo; - reads it from standard input, @FILE from a file. Other',
    'users of this machine can read a token that is passed as an argument. No other token is required. A',
    'wrapping token can be used once.',
    '',
    'Example: outpost unwrap -field=password - < token',
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1 },
  async run(values, [given], io) {
    const prompt = { what: 'wrapping token', prompt: 'Wrapping token (will be hidden): ' }
    const token = await readSecret(given, prompt, io)
    if (/[^\x21-\x7e]/.test(token))
      throw new UsageError('malformed token: it contains a character that tokens do not have')
    const core = coreOf(values, io)
    // Sent as the client token, so that no other token is sent.
    const access = { ...core, target: { ...core.target, token, tokenFrom: undefined } }
    const answer = await sendRequest(access, { method: 'PUT', path: 'sys/wrapping/unwrap' })
    if (!answer) throw new CommandError('the wrapped response is empty')
    printSecret(answer, values, io)
    return 0
  },
})
