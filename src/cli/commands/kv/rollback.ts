/** `outpost kv rollback`. */
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { integer, UsageError } from '../../framework/options.ts'
import { askCore, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { formatOption } from '../../core/secret-output.ts'
import { printVersion } from './kv-output.ts'
import { MISSING_PATH, mountOption, versionedPlace } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv rollback',
  summary: 'Write an older version of a secret anew, as the newest',
  details: 'It fails when somebody else writes in between.\n\nExample: outpost kv rollback -version=2 secret/app/db',
  options: {
    version: integer({
      placeholder: 'N',
      help: 'The version to go back to',
      fallback: 0,
      min: 1,
      max: Number.MAX_SAFE_INTEGER,
    }),
    ...mountOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: 'PATH', min: 1, max: 1, missing: MISSING_PATH },
  async run(values, [path = ''], io) {
    const { version } = values
    if (version === 0) throw new UsageError('to which version? give it as in -version=2')
    const core = coreOf(values, io)
    const at = (await versionedPlace(core, path, values.mount)).at('data')
    const newest = await askCore(core, { path: at })
    if (!newest) throw new CommandError(`no value found at ${at}`)
    const cas = newest.fields.under('data').under('metadata').number('version')
    const wanted = await askCore(core, { path: at, query: { version } })
    const inner = wanted?.fields.under('data')
    const data = inner?.value('data')
    const metadata = inner?.under('metadata')
    // Also one that is to be deleted later: what is marked so is not what anybody wants to go back to.
    const isDeleted = metadata?.text('deletion_time') !== '' || metadata.boolean('destroyed')
    if (!isJsonObject(data) || isDeleted) {
      throw new CommandError(`version ${version} of ${at} ${wanted ? 'is deleted or destroyed' : 'is not there'}`)
    }
    const body = { data, options: { cas } }
    printVersion(await requireCore(core, { method: 'PUT', path: at, body }), at, values, io)
    return 0
  },
})
