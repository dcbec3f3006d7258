/** `outpost kv metadata get`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { cell, fieldOption, formatOf, formatOption, pairsTable, printSecret } from '../../core/secret-output.ts'
import { metadataRows, titled } from './kv-output.ts'
import { MISSING_PATH, mountOption, versionedPlace } from './secret-path.ts'

export const command = defineCommand({
  name: 'kv metadata get',
  summary: 'Show the settings of a secret, and its versions',
  options: { ...mountOption, ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'PATH', min: 1, max: 1, missing: MISSING_PATH },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const at = (await versionedPlace(core, path, values.mount)).at('metadata')
    const answer = await requireCore(core, { path: at })
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
