/** `outpost kv metadata put`, `kv metadata patch` and `kv metadata delete`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { integer, optionalFlag, text, texts, UsageError } from '../../framework/options.ts'
import { askCore, coreOf, coreOptions, MERGE_PATCH } from '../../core/core-access.ts'
import { readPairs } from '../../input/data-input.ts'
import { formatOption, printWritten } from '../../core/secret-output.ts'
import { MISSING_PATH, mountOption, versionedPlace } from './secret-path.ts'

const VERSIONS_MAX = 0xff_ff_ff_ff
const operands = { shown: 'PATH', min: 1, max: 1, missing: MISSING_PATH }
const more = { ...mountOption, ...formatOption, ...coreOptions }
const settings = {
  'max-versions': integer({
    placeholder: 'N',
    help: 'How many versions are kept; 0 for what the store says',
    fallback: undefined,
    min: 0,
    max: VERSIONS_MAX,
  }),
  'cas-required': optionalFlag('Writes must name the current version (-cas)'),
  'delete-version-after': text({
    placeholder: 'DURATION',
    help: 'How long each new version lives',
    fallback: undefined,
  }),
  'custom-metadata': texts('KEY=VALUE', 'A text to be kept with the secret'),
}

interface Settings {
  readonly 'max-versions': number | undefined
  readonly 'cas-required': boolean | undefined
  readonly 'delete-version-after': string | undefined
  readonly 'custom-metadata': readonly string[]
}

export const put = defineCommand({
  name: 'kv metadata put',
  summary: 'Set how a secret is kept, and what texts are kept with it',
  details: 'What is not given stays as it is; custom metadata that is given replaces all of it.',
  options: { ...settings, ...more },
  operands,
  async run(values, [path = ''], io) {
    const custom = readPairs(values['custom-metadata'], '-custom-metadata')
    const isCustom = values['custom-metadata'].length > 0
    const body = { ...given(values), ...(isCustom ? { custom_metadata: custom } : {}) }
    const core = coreOf(values, io)
    const at = (await versionedPlace(core, path, values.mount)).at('metadata')
    const answer = await askCore(core, { method: 'PUT', path: at, body })
    printWritten(answer, `Data written to: ${at}`, values, io)
    return 0
  },
})

export const patch = defineCommand({
  name: 'kv metadata patch',
  summary: 'Change how a secret is kept, and single texts that are kept with it',
  options: { ...settings, 'remove-custom-metadata': texts('KEY', 'A text to remove'), ...more },
  operands,
  async run(values, [path = ''], io) {
    const removed = values['remove-custom-metadata']
      .flatMap((list) => list.split(','))
      .map((key) => [key, null] as const)
    const custom = Object.entries(readPairs(values['custom-metadata'], '-custom-metadata'))
    const changes = given(values)
    if (Object.values(changes).every((value) => value === undefined) && custom.length + removed.length === 0) {
      throw new UsageError('what shall change? give a setting, as in -max-versions=5')
    }
    const body = { ...changes, custom_metadata: Object.fromEntries([...custom, ...removed]) }
    const core = coreOf(values, io)
    const at = (await versionedPlace(core, path, values.mount)).at('metadata')
    const answer = await askCore(core, { method: 'PATCH', path: at, body, headers: MERGE_PATCH })
    printWritten(answer, `Data written to: ${at}`, values, io)
    return 0
  },
})

export const remove = defineCommand({
  name: 'kv metadata delete',
  summary: 'Remove a secret with all of its versions, for good',
  options: more,
  operands,
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const at = (await versionedPlace(core, path, values.mount)).at('metadata')
    const answer = await askCore(core, { method: 'DELETE', path: at })
    printWritten(answer, `Data deleted (if it existed) at: ${at}`, values, io)
    return 0
  },
})

function given(values: Settings): Record<string, unknown> {
  return {
    max_versions: values['max-versions'],
    cas_required: values['cas-required'],
    delete_version_after: values['delete-version-after'],
  }
}
