/** `outpost delete`. */
import { defineCommand } from '../framework/command-shape.ts'
import { askCore, cleanPath, coreOf, coreOptions } from '../core/core-access.ts'
import { readPairs } from '../input/data-input.ts'
import { formatOption, printWritten } from '../core/secret-output.ts'

export const command = defineCommand({
  name: 'delete',
  summary: 'Delete what is at a path of the secrets core',
  details: [
    'What that means is the matter of the engine: of a versioned secret (secret/data/...) the latest',
    'version is marked as deleted, and can be had back with "outpost kv undelete".',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  operands: {
    shown: 'PATH [KEY=VALUE...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
    missing: 'which path? as in: outpost delete cubbyhole/note',
  },
  async run(values, [path = '', ...parameters], io) {
    const at = cleanPath(path)
    const query = readPairs(parameters, 'a parameter')
    const answer = await askCore(coreOf(values, io), { method: 'DELETE', path: at, query })
    printWritten(answer, `Data deleted (if it existed) at: ${at}`, values, io)
    return 0
  },
})
