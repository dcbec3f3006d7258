/** `outpost operator dr status`. */
import { type Answer } from '../../../output/answer.ts'
import { defineCommand } from '../../../framework/command-shape.ts'
import { coreOf, coreOptions } from '../../../core/core-access.ts'
import { formatOf, formatOption, pairsTable, printAs } from '../../../core/secret-output.ts'
import { shownName } from '../../../framework/shown.ts'
import { drStatus, otherSide } from './dr-access.ts'

export const command = defineCommand({
  name: 'operator dr status',
  summary: 'Show how this cluster takes part in replication, and how far behind the secondaries are',
  details: 'It needs no token.\n\nExample: outpost operator dr status -format json',
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
    ...row('Lag (seconds)', 'lag_seconds'),
    ...row('Sync', 'sync'),
    ...row('Merkle Root', 'merkle_root'),
    ...row('Conflict Report', 'conflict_report'),
    ...row('Fence Reason', 'fence_reason'),
    ...row('Fence Detail', 'fence_detail'),
    ...row('Fenced By', 'fenced_by'),
    ...row('Replaced By', 'replaced_by'),
    ...otherSide(fields).map(sideRow),
  ]
}

function sideRow(row: Answer): readonly [string, string] {
  const id = row.text('node_id')
  const lag = id === '' ? '' : `, ${row.number('lag_entries')} entries behind`
  const where = row.text('api_address')
  const state = row.text('connection_status')
  const isConnected = state === 'connected'
  const away = [`${row.number('disconnected_seconds')} s`, row.text('disconnect_reason')].filter((text) => text !== '')
  const since = id === '' || isConnected ? '' : ` for ${away.join(': ')}`
  const marks = [
    ...(id === '' && row.boolean('sealed') ? [', sealed'] : []),
    ...(id !== '' && isConnected && !row.boolean('authenticated') ? [', not authenticated (sealed?)'] : []),
    ...(row.number('duplicate_connections') > 0 ? [', DUPLICATE CONNECTIONS'] : []),
  ].join('')
  return [
    id === '' ? 'Primary' : `Secondary ${shownName(id)}`,
    `${shownName(where)} ${state}${shownName(since)}${lag}${marks}`.trim(),
  ]
}
