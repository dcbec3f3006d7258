/** `outpost operator usage`. */
import { openResponse, parseJson, responseText } from '../../client/http-client.ts'
import { type CoreAccess, coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { cell, formatOf, formatOption, pairsTable, printAs, wideTable } from '../../core/secret-output.ts'
import { defineCommand } from '../../framework/define-command.ts'
import { fieldsOf, isJsonObject, type JsonFields } from '../../output/json.ts'
import { humanBytes } from '../../output/table.ts'

/** Rows of a table of token counts. JSON has all. */
const COUNTS_SHOWN_MAX = 10
const NOUNS = ['secrets', 'keys', 'roles', 'users'] as const
/** Names of metrics, and of their members in the JSON output. */
const SIZES = {
  'outpost.store.bytes': 'store_bytes',
  'outpost.store.log_bytes': 'log_bytes',
  'outpost.store.disk_free_bytes': 'disk_free_bytes',
} as const

export const command = defineCommand({
  name: 'operator usage',
  summary: 'Show the number of stored objects by kind',
  details: [
    'Counts entities, tokens by policy and auth method, leases, and the secrets, keys, roles or users of each',
    'mount, and shows the size of the store. Batch tokens are not stored and not counted. Counting reads every',
    'token, in slices between other requests: with 100,000 tokens it takes several seconds. Requires sudo on',
    'sys/internal/counters/usage.',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const format = formatOf(values, io)
    const core = coreOf(values, io)
    const { fields } = await requireResponse(core, { path: 'sys/internal/counters/usage' })
    const data = fields.value('data')
    const sizes = await storeSizes(core)
    const usage = { ...(isJsonObject(data) ? data : {}), store: sizes }
    printAs(format, usage, io, () => textOf(fields.under('data'), sizes))
    return 0
  },
})

type StoreSizes = Readonly<Partial<Record<(typeof SIZES)[keyof typeof SIZES], number>>>

/** Empty where metrics are disabled or filtered. */
async function storeSizes({ target }: CoreAccess): Promise<StoreSizes> {
  const response = await openResponse(target, { path: '/v1/metrics' })
  const gauges = fieldsOf(parseJson(await responseText(response, target))).list('Gauges')
  const entries = gauges.flatMap((gauge) => {
    const size = Object.entries(SIZES).find(([name]) => gauge.text('Name').endsWith(name))
    return size ? [[size[1], gauge.number('Value')] as const] : []
  })
  return Object.fromEntries(entries)
}

function textOf(data: JsonFields, sizes: StoreSizes): string {
  const [tokens, leases] = [data.under('tokens'), data.under('leases')]
  const summary = pairsTable([
    ['Entities', data.value('entities')],
    ['Entity Aliases', data.value('entity_aliases')],
    ['Groups', data.value('groups')],
    ['Service Tokens', tokens.value('service')],
    ['  with policy root', tokens.value('root')],
    ['  orphans', tokens.value('orphan')],
    ['  periodic', tokens.value('periodic')],
    ['  without expiry', tokens.value('without_expiry')],
    ['Leases', leases.value('total')],
    ['Irrevocable Leases', leases.value('irrevocable')],
    ['Policies', data.value('policies')],
    ['Rate Limit Quotas', data.value('quotas')],
    ['Audit Devices', data.value('audit_devices')],
    ['Store Size', bytesText(sizes.store_bytes)],
    ['Replication Log Size', bytesText(sizes.log_bytes)],
    ['Free Disk Space', bytesText(sizes.disk_free_bytes)],
  ])
  return [
    summary,
    mountsTable(data),
    countsTable('Policy', tokens, 'by_policy'),
    countsTable('Auth method', tokens, 'by_auth_method'),
  ]
    .filter((table) => table !== '')
    .join('\n')
}

function bytesText(value: number | undefined): string {
  return value === undefined ? 'n/a' : humanBytes(value)
}

function mountsTable(data: JsonFields): string {
  const rows = data.list('mounts').map((mount) => {
    const noun = NOUNS.find((each) => mount.value(each) !== undefined)
    const items = noun === undefined ? '-' : `${cell(mount.value(noun))} ${noun}`
    return [mount.text('path'), mount.text('type'), items, mount.value('entries'), mount.value('leases')].map(cell)
  })
  return wideTable(['Mount', 'Type', 'Items', 'Entries', 'Leases'], rows)
}

/** The most frequent names. */
function countsTable(title: string, tokens: JsonFields, name: string): string {
  const counts = tokens.under(name)
  const names = tokens.names(name).toSorted((a, b) => counts.number(b) - counts.number(a))
  if (names.length === 0) return ''
  const rows = names.slice(0, COUNTS_SHOWN_MAX).map((each) => [cell(each), cell(counts.number(each))])
  const more = names.length - rows.length
  return wideTable([title, 'Tokens'], more > 0 ? [...rows, [`and ${more} more`, '']] : rows)
}
