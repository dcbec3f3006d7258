/** Output of secret versions as `vault kv` prints them: path, metadata, data. */
import type { CommandIo } from '../../framework/define-command.ts'
import { isJsonObject } from '../../output/json.ts'
import type { CoreResponse } from '../../core/core-access.ts'
import {
  cell,
  dataRows,
  type Format,
  formatOf,
  pairsTable,
  printField,
  printSecret,
  printWarnings,
} from '../../core/secret-output.ts'

interface KvOutputOptions {
  readonly format: Format | undefined
  readonly field?: string | undefined
}

const EDGE = 2

/** A title between equals signs, as wide as the block below it. */
export function titled(title: string, below: string): string {
  const width = Math.max(...below.split('\n').map((line) => line.length))
  const signs = Math.max(width - title.length - 2, 2 * EDGE)
  const left = Math.floor(signs / 2)
  return `${'='.repeat(left)} ${title} ${'='.repeat(signs - left)}\n${below}`
}

/** The version that a write has created. */
export function printVersion(answer: CoreResponse, path: string, values: KvOutputOptions, io: CommandIo): void {
  const format = formatOf(values, io)
  const data = answer.fields.value('data')
  if (format !== 'table' || values.field !== undefined || !isJsonObject(data)) {
    printSecret(answer, values, io)
    return
  }
  io.out(`${titled('Secret Path', `${cell(path)}\n`)}\n${titled('Metadata', pairsTable(metadataRows(data)))}`)
  printWarnings(answer, io)
}

/** A version that was read; without data if it was deleted or destroyed. */
export function printRead(answer: CoreResponse, path: string, values: KvOutputOptions, io: CommandIo): void {
  const format = formatOf(values, io)
  const inner = answer.fields.under('data')
  const data = inner.value('data')
  if (values.field !== undefined) {
    printField(values.field, inner.under('data').value(values.field), format, io)
    return
  }
  if (format !== 'table') {
    printSecret(answer, values, io)
    return
  }
  const metadata = inner.value('metadata')
  const parts = [titled('Secret Path', `${cell(path)}\n`)]
  if (isJsonObject(metadata)) parts.push(titled('Metadata', pairsTable(metadataRows(metadata))))
  if (isJsonObject(data)) parts.push(titled('Data', pairsTable(verbatimRows(data))))
  io.out(parts.join('\n'))
  printWarnings(answer, io)
}

/** Data is not interpreted: a number under the key `ttl` is printed unchanged. */
function verbatimRows(data: Readonly<Record<string, unknown>>): [string, unknown][] {
  return Object.keys(data)
    .toSorted()
    .map((key) => [key, data[key]])
}

export function metadataRows(metadata: Readonly<Record<string, unknown>>): (readonly [string, unknown])[] {
  return dataRows(metadata).map(([key, value]) => [key, value === '' ? 'n/a' : value] as const)
}
