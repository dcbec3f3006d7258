/** `outpost kv metadata get|put|patch|delete`. */
import { sendRequest, coreOf, coreOptions, MERGE_PATCH, requireResponse } from '../../core/core-access.ts'
import {
  cell,
  fieldOption,
  formatOf,
  formatOption,
  pairsTable,
  printSecret,
  printWriteResult,
} from '../../core/secret-output.ts'
import { defineCommand } from '../../framework/define-command.ts'
import { integer, optionalFlag, text, texts, UsageError } from '../../framework/options.ts'
import { readPairs } from '../../input/data-input.ts'
import { isJsonObject } from '../../output/json.ts'
import { metadataRows, titled } from './kv-output.ts'
import { mountOption, pathOperand, resolveVersionedPath } from './secret-path.ts'

const get = defineCommand({
  name: 'kv metadata get',
  summary: 'Show the metadata and versions of a secret',
  options: { ...mountOption, ...fieldOption, ...formatOption, ...coreOptions },
  operands: pathOperand,
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const at = (await resolveVersionedPath(core, path, values.mount)).at('metadata')
    const answer = await requireResponse(core, { path: at })
    const data = answer.fields.value('data')
    if (values.field !== undefined || formatOf(values, io) !== 'table' || !isJsonObject(data)) {
      printSecret(answer, values, io)
      return 0
    }
    const { versions, ...settings } = data
    const parts = [titled('Metadata Path', `${cell(at)}\n`), titled('Metadata', pairsTable(metadataRows(settings)))]
    const numbered = isJsonObject(versions) ? Object.entries(versions) : []
    for (const [number, version] of numbered.toSorted(([a], [b]) => Number(a) - Number(b))) {
      const rows = isJsonObject(version) ? metadataRows(version) : []
      parts.push(titled(`Version ${cell(number)}`, pairsTable(rows)))
    }
    io.out(parts.join('\n'))
    return 0
  },
})

const VERSIONS_MAX = 0xff_ff_ff_ff
const commonOptions = { ...mountOption, ...formatOption, ...coreOptions }
const settingOptions = {
  'max-versions': integer({
    placeholder: 'N',
    help: 'Number of versions to keep; 0 for the mount default',
    fallback: undefined,
    min: 0,
    max: VERSIONS_MAX,
  }),
  'cas-required': optionalFlag('Require -cas for writes'),
  'delete-version-after': text({
    placeholder: 'DURATION',
    help: 'Delete new versions after this time',
    fallback: undefined,
  }),
  'custom-metadata': texts('KEY=VALUE', 'Custom metadata of the secret'),
}

interface MetadataSettings {
  readonly 'max-versions': number | undefined
  readonly 'cas-required': boolean | undefined
  readonly 'delete-version-after': string | undefined
  readonly 'custom-metadata': readonly string[]
}

const put = defineCommand({
  name: 'kv metadata put',
  summary: 'Set the metadata of a secret',
  details: 'Omitted settings do not change. -custom-metadata replaces all custom metadata.',
  options: { ...settingOptions, ...commonOptions },
  operands: pathOperand,
  async run(values, [path = ''], io) {
    const custom = readPairs(values['custom-metadata'], '-custom-metadata')
    const isCustom = values['custom-metadata'].length > 0
    const body = { ...givenSettings(values), ...(isCustom ? { custom_metadata: custom } : {}) }
    const core = coreOf(values, io)
    const at = (await resolveVersionedPath(core, path, values.mount)).at('metadata')
    const answer = await sendRequest(core, { method: 'PUT', path: at, body })
    printWriteResult(answer, `Data written to: ${at}`, values, io)
    return 0
  },
})

const patch = defineCommand({
  name: 'kv metadata patch',
  summary: 'Update parts of the metadata of a secret',
  options: { ...settingOptions, 'remove-custom-metadata': texts('KEY', 'Custom metadata to remove'), ...commonOptions },
  operands: pathOperand,
  async run(values, [path = ''], io) {
    const removed = values['remove-custom-metadata']
      .flatMap((list) => list.split(','))
      .map((key) => [key, null] as const)
    const custom = Object.entries(readPairs(values['custom-metadata'], '-custom-metadata'))
    const changes = givenSettings(values)
    if (Object.values(changes).every((value) => value === undefined) && custom.length + removed.length === 0) {
      throw new UsageError('missing setting: use an option such as -max-versions=5')
    }
    const body = { ...changes, custom_metadata: Object.fromEntries([...custom, ...removed]) }
    const core = coreOf(values, io)
    const at = (await resolveVersionedPath(core, path, values.mount)).at('metadata')
    const answer = await sendRequest(core, { method: 'PATCH', path: at, body, headers: MERGE_PATCH })
    printWriteResult(answer, `Data written to: ${at}`, values, io)
    return 0
  },
})

const remove = defineCommand({
  name: 'kv metadata delete',
  summary: 'Permanently delete a secret with all versions',
  options: commonOptions,
  operands: pathOperand,
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const at = (await resolveVersionedPath(core, path, values.mount)).at('metadata')
    const answer = await sendRequest(core, { method: 'DELETE', path: at })
    printWriteResult(answer, `Data deleted (if it existed) at: ${at}`, values, io)
    return 0
  },
})

function givenSettings(values: MetadataSettings): Record<string, unknown> {
  return {
    max_versions: values['max-versions'],
    cas_required: values['cas-required'],
    delete_version_after: values['delete-version-after'],
  }
}

export const commands = [get, put, patch, remove]
