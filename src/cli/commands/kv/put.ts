/** `outpost kv put`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { integer } from '../../framework/options.ts'
import { coreOf, coreOptions, requireCore, askCore } from '../../core/core-access.ts'
import { readData } from '../../input/data-input.ts'
import { fieldOption, formatOption, printWritten } from '../../core/secret-output.ts'
import { printVersion } from './kv-output.ts'
import { mountOption, secretPlace } from './secret-path.ts'

export const casOption = {
  cas: integer({
    placeholder: 'N',
    help: 'Write only if this is the current version; 0: only if there is none yet',
    fallback: -1,
    min: -1,
    max: Number.MAX_SAFE_INTEGER,
  }),
}

export const command = defineCommand({
  name: 'kv put',
  summary: 'Write a secret, as a new version',
  details: [
    'KEY=VALUE sets a text, KEY=@FILE the content of a file, KEY=- what comes on standard input.',
    '@FILE and - alone are JSON objects with all of the data. What is not named is not in the new',
    'version; "outpost kv patch" keeps it. What stands on the command line other users of the machine',
    'can see while it runs.',
    '',
    'Example: outpost kv put secret/app/db user=app password=-',
  ].join('\n'),
  options: { ...casOption, ...mountOption, ...fieldOption, ...formatOption, ...coreOptions },
  operands: {
    shown: 'PATH KEY=VALUE...',
    min: 2,
    max: Number.POSITIVE_INFINITY,
    missing: 'what shall be written? as in: outpost kv put secret/app/db user=app',
  },
  async run(values, [path = '', ...operands], io) {
    const core = coreOf(values, io)
    const data = await readData(operands)
    const place = await secretPlace(core, path, values.mount)
    const at = place.at('data')
    if (!place.isVersioned) {
      printWritten(await askCore(core, { method: 'PUT', path: at, body: data }), `Data written to: ${at}`, values, io)
      return 0
    }
    const body = { data, options: values.cas >= 0 ? { cas: values.cas } : {} }
    printVersion(await requireCore(core, { method: 'PUT', path: at, body }), at, values, io)
    return 0
  },
})
