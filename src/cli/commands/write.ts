/** `outpost write`. */
import { defineCommand } from '../framework/define-command.ts'
import { flag, UsageError } from '../framework/options.ts'
import { sendRequest, cleanPath, coreOf, coreOptions, wrapOption } from '../core/core-access.ts'
import { readData } from '../input/data-input.ts'
import { fieldOption, formatOption, printWriteResult } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'write',
  summary: 'Write data to a path',
  details: [
    'KEY=VALUE sets a string, KEY=@FILE reads the value from a file, KEY=- from standard input. @FILE or -',
    'alone reads a JSON object with all data. Other users of this machine can read arguments while the command',
    'runs: pass secrets in a file or on standard input. For KV secrets, use "outpost kv put".',
    '',
    'Example: outpost write cubbyhole/note text=hello password=-',
  ].join('\n'),
  options: {
    force: flag('Write without data'),
    f: flag('Alias of -force'),
    ...fieldOption,
    ...formatOption,
    ...wrapOption,
    ...coreOptions,
  },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
  },
  async run(values, [path = '', ...data], io) {
    const at = cleanPath(path)
    if (data.length === 0 && !values.force && !values.f) {
      throw new UsageError('missing KEY=VALUE: pass data, or use -force to write without data')
    }
    const body = data.length === 0 ? {} : { body: await readData(data) }
    const answer = await sendRequest(coreOf(values, io), { method: 'PUT', path: at, ...body })
    printWriteResult(answer, `Data written to: ${at}`, values, io)
    return 0
  },
})
