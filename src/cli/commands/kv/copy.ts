/** `outpost kv copy` and `kv move`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { UsageError } from '../../framework/options.ts'
import { cleanPath, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'
import { mountOption, versionedPlace } from './secret-path.ts'

const copying = (verb: 'copy' | 'move', summary: string) =>
  defineCommand({
    name: `kv ${verb}`,
    summary,
    details: [
      'With its settings and all of its versions, in one step. There must be no secret at the new name,',
      'which is in the same store.',
      '',
      `Example: outpost kv ${verb} secret/app/db secret/team/db`,
    ].join('\n'),
    options: { ...mountOption, ...fieldOption, ...formatOption, ...coreOptions },
    operands: {
      shown: 'PATH NEW-PATH',
      min: 2,
      max: 2,
      missing: `from where to where? as in: outpost kv ${verb} secret/app/db secret/team/db`,
    },
    async run(values, [from = '', given = ''], io) {
      const core = coreOf(values, io)
      const place = await versionedPlace(core, from, values.mount)
      const to = values.mount === undefined ? belowMount(given, place.mount) : cleanPath(given)
      const request = { method: 'POST', path: place.at(verb), body: { to } } as const
      printSecret(await requireCore(core, request), values, io)
      return 0
    },
  })

/** Throws UsageError for a name in another store. */
function belowMount(given: string, mount: string): string {
  const path = cleanPath(given)
  if (path.startsWith(`${mount}/`)) return path.slice(mount.length + 1)
  throw new UsageError(`the new name must be in the same store: ${mount}/...`)
}

export const command = copying('copy', 'Copy a secret with its history')
export const move = copying('move', 'Give a secret another name, with its history')
