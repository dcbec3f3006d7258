/** `outpost operator dr status`. */
import { type Answer } from '../../../output/answer.ts'
import { defineCommand } from '../../../framework/command-shape.ts'
import { coreOf, coreOptions } from '../../../core/core-access.ts'
import { formatOf, formatOption, pairsTable, printAs } from '../../../core/secret-output.ts'
import { shownName } from '../../../framework/shown.ts'
import { drStatus, otherSide, warningsOf } from './dr-access.ts'
import { roundedDuration, roundedSkew } from './rounded.ts'

export const command = defineCommand({
  name: 'operator dr status',
  summary: 'Show how this cluster takes part in replication, and how far behind the secondaries are',
  details: [
    'It needs no token. Clock skew is the clock of the other server minus the clock of this one. Times are',
    'rounded; -json prints the exact values.',
    '',
    'Example: outpost operator dr status -json',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const { body, fields } = await drStatus(coreOf(values, io))
    printAs(formatOf(values, io), body, io, () => pairsTable(rowsOf(fields)))
    return 0
  },
})

function rowsOf(fields: Answer): (readonly [string, string])[] {
  const row = (name: string, member: string) => {
    const value = fields.value(member)
    const shown = typeof value === 'number' || typeof value === 'string' ? String(value) : ''
    return shown === '' ? [] : [[name, shownName(shown)] as const]
  }
  return [
    ['Mode', fields.text('mode')],
    ...row('State', 'state'),
    ...row('Trouble', 'trouble'),
    ...row('Replication Set', 'cluster_id'),
    ...row('Epoch', 'epoch'),
    ...row('Position', 'position'),
    ...row('Lag (entries)', 'lag_entries'),
    ...lagRow(fields),
    ...row('Sync', 'sync'),
    ...row('Merkle Root', 'merkle_root'),
    ...row('Conflict Report', 'conflict_report'),
    ...row('Fence Reason', 'fence_reason'),
    ...row('Fence Detail', 'fence_detail'),
    ...row('Fenced By', 'fenced_by'),
    ...row('Replaced By', 'replaced_by'),
    ...otherSide(fields).map(sideRow),
    ...warningsOf(fields).map((warning) => ['Warning', shownName(warning)] as const),
  ]
}

function lagRow(fields: Answer): (readonly [string, string])[] {
  const seconds = fields.value('lag_seconds')
  return typeof seconds === 'number' ? [['Lag (time)', roundedDuration(seconds * 1000)]] : []
}

function sideRow(row: Answer): readonly [string, string] {
  const id = row.text('node_id')
  const lag = id === '' ? '' : `, ${row.number('lag_entries')} entries behind`
  const where = row.text('api_address')
  const state = row.text('connection_status')
  const isConnected = state === 'connected'
  const absence = roundedDuration(row.number('disconnected_seconds') * 1000)
  const away = [absence, row.text('disconnect_reason')].filter((text) => text !== '')
  const since = id === '' || isConnected ? '' : ` for ${away.join(': ')}`
  const marks = [
    ...(id === '' && row.boolean('sealed') ? [', sealed'] : []),
    ...(id !== '' && isConnected && !row.boolean('authenticated') ? [', not authenticated (sealed?)'] : []),
    ...(row.number('duplicate_connections') > 0 ? [', DUPLICATE CONNECTIONS'] : []),
  ].join('')
  return [
    id === '' ? 'Primary' : `Secondary ${shownName(id)}`,
    `${shownName(where)} ${state}${shownName(since)}${lag}${heartbeat(row)}${marks}`.trim(),
  ]
}

/** The server measures the age: the clock of this machine may differ from its clock. */
function heartbeat(row: Answer): string {
  if (row.text('last_heartbeat') === '') return ''
  const ageMs = Number(row.text('replication_primary_canary_age_ms'))
  const skewMs = Number(row.text('clock_skew_ms'))
  return `, last heartbeat ${roundedDuration(ageMs)} ago, clock skew ${roundedSkew(skewMs)}`
}
