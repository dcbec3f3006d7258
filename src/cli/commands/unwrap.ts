/** `outpost unwrap`: the answer below a wrapping token. */
import { CommandError, defineCommand } from '../framework/command-shape.ts'
import { UsageError } from '../framework/options.ts'
import { askCore, coreOf, coreOptions } from '../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../core/secret-output.ts'
import { typedSecret } from '../input/typed-secret.ts'

export const command = defineCommand({
  name: 'unwrap',
  summary: 'Get the answer that a wrapping token stands for, once',
  details: [
    'The token is asked for on the terminal and not shown; - reads it from standard input, @FILE from a',
    'file. One that is given as an operand can be read by others on this machine in the list of processes.',
    'No other token is needed. After this the wrapping token is good for nothing.',
    '',
    'Example: outpost unwrap -field=password - < token',
  ].join('\n'),
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: '[TOKEN|@FILE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    const wanted = { what: 'the wrapping token', prompt: 'Wrapping token (will be hidden): ' }
    const token = await typedSecret(given, wanted, io)
    if (/[^\x21-\x7e]/.test(token)) throw new UsageError('that is no token: it has a sign that none has')
    const core = coreOf(values, io)
    // As the client token: then no other one is sent along.
    const access = { ...core, target: { ...core.target, token, tokenFrom: undefined } }
    const answer = await askCore(access, { method: 'PUT', path: 'sys/wrapping/unwrap' })
    if (!answer) throw new CommandError('the answer below the token is empty')
    printSecret(answer, values, io)
    return 0
  },
})
