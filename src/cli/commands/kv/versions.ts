/** `outpost kv delete`, `kv undelete` and `kv destroy`: versions of a secret. */
import { defineCommand } from '../../framework/command-shape.ts'
import { texts, UsageError } from '../../framework/options.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'
import { formatOption, printWritten } from '../../core/secret-output.ts'
import { MISSING_PATH, mountOption, secretPlace, versionedPlace } from './secret-path.ts'

const operands = { shown: 'PATH', min: 1, max: 1, missing: MISSING_PATH }
const options = {
  versions: texts('N,...', 'These versions'),
  ...mountOption,
  ...formatOption,
  ...coreOptions,
}

export const command = defineCommand({
  name: 'kv delete',
  summary: 'Mark the newest version of a secret, or others, as deleted',
  details: 'Versions can be had back with "outpost kv undelete"; in a store without versions it is gone.',
  options,
  operands,
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const versions = versionsOf(values.versions)
    if (versions.length === 0) {
      const at = (await secretPlace(core, path, values.mount)).at('data')
      const answer = await askCore(core, { method: 'DELETE', path: at })
      printWritten(answer, `Data deleted (if it existed) at: ${at}`, values, io)
      return 0
    }
    const place = await versionedPlace(core, path, values.mount)
    const answer = await askCore(core, { method: 'PUT', path: place.at('delete'), body: { versions } })
    printWritten(answer, `Data deleted (if it existed) at: ${place.at('delete')}`, values, io)
    return 0
  },
})

const acting = (verb: 'undelete' | 'destroy', summary: string, details: string) =>
  defineCommand({
    name: `kv ${verb}`,
    summary,
    details,
    options,
    operands,
    async run(values, [path = ''], io) {
      const versions = versionsOf(values.versions)
      if (versions.length === 0) throw new UsageError('which versions? give them as in -versions=1,2')
      const core = coreOf(values, io)
      const at = (await versionedPlace(core, path, values.mount)).at(verb)
      const answer = await askCore(core, { method: 'PUT', path: at, body: { versions } })
      printWritten(answer, `Data written to: ${at}`, values, io)
      return 0
    },
  })

export const undelete = acting('undelete', 'Take back that versions were deleted', 'What was destroyed stays so.')
export const destroy = acting(
  'destroy',
  'Remove the data of versions for good',
  'Nothing brings it back. Of the versions themselves it stays known that they were there.',
)

/** As texts, which is how they have always been sent. Throws UsageError. */
function versionsOf(given: readonly string[]): string[] {
  const versions = given.flatMap((list) => list.split(',')).map((version) => version.trim())
  const wrong = versions.find((version) => !/^\d{1,15}$/.test(version))
  if (wrong === undefined) return versions
  throw new UsageError(`option -versions: ${JSON.stringify(wrong)} is no version, give numbers as in -versions=1,2`)
}
