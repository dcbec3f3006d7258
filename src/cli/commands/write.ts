/** `outpost write`. */
import { defineCommand } from '../framework/command-shape.ts'
import { flag, UsageError } from '../framework/options.ts'
import { askCore, cleanPath, coreOf, coreOptions, wrapOption } from '../core/core-access.ts'
import { readData } from '../input/data-input.ts'
import { fieldOption, formatOption, printWritten } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'write',
  summary: 'Write data to a path of the secrets core',
  details: [
    'KEY=VALUE sets a text, KEY=@FILE the content of a file, KEY=- what comes on standard input.',
    '@FILE and - alone are JSON objects with all of the data. What stands on the command line can be',
    'seen by other users of the machine while it runs: give secrets by file or standard input.',
    'Versioned secrets are easier to write with "outpost kv put".',
    '',
    'Example: outpost write cubbyhole/note text=hello password=-',
  ].join('\n'),
  options: {
    force: flag('Write without data, as some endpoints want it'),
    f: flag('The same as -force'),
    ...fieldOption,
    ...formatOption,
    ...wrapOption,
    ...coreOptions,
  },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
    missing: 'which path? as in: outpost write cubbyhole/note text=hello',
  },
  async run(values, [path = '', ...data], io) {
    const at = cleanPath(path)
    if (data.length === 0 && !values.force && !values.f) {
      throw new UsageError('what shall be written? give KEY=VALUE, @FILE or -, or -force to write nothing')
    }
    const body = data.length === 0 ? {} : { body: await readData(data) }
    const answer = await askCore(coreOf(values, io), { method: 'PUT', path: at, ...body })
    printWritten(answer, `Data written to: ${at}`, values, io)
    return 0
  },
})
