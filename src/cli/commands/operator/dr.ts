/** `outpost operator dr status|enable|token|demote|disable`. */
import { confirm, confirmOptions } from '../../core/confirmation.ts'
import { coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { text } from '../../framework/options.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { OPERANDS_MAX, readSecret, secretOperand } from '../../input/secret-input.ts'
import { type JsonFields, fieldsOf } from '../../output/json.ts'
import { counted } from '../../output/terminal.ts'
import {
  change,
  DR,
  drStatus,
  peersOf,
  printWarningLines,
  roundedDuration,
  roundedSkew,
  warningsOf,
} from './dr/dr-access.ts'
import { activationOptions, join } from './dr/join.ts'

const status = defineCommand({
  name: 'operator dr status',
  summary: 'Show the DR replication status',
  details: [
    'Requires no token. The clock skew is the clock of the other server minus the clock of this server. Times',
    'are rounded; -json prints exact values.',
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

function rowsOf(fields: JsonFields): (readonly [string, string])[] {
  const row = (name: string, member: string) => {
    const value = fields.value(member)
    const shown = typeof value === 'number' || typeof value === 'string' ? String(value) : ''
    return shown === '' ? [] : [[name, escapeLine(shown)] as const]
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
    // Nothing follows a replaced primary: one of its secondaries is its successor.
    ...(fields.text('fence_reason') === 'replaced' ? [] : peersOf(fields).map(peerRow)),
    ...warningsOf(fields).map((warning) => ['Warning', escapeLine(warning)] as const),
  ]
}

function lagRow(fields: JsonFields): (readonly [string, string])[] {
  const seconds = fields.value('lag_seconds')
  return typeof seconds === 'number' ? [['Lag (time)', roundedDuration(seconds * 1000)]] : []
}

function peerRow(row: JsonFields): readonly [string, string] {
  const id = row.text('node_id')
  // Until the first heartbeat after a start, the acknowledgement is the one that was saved before it.
  const isSaved = id !== '' && row.text('last_heartbeat') === ''
  const lag =
    id === '' ? '' : `, ${isSaved ? 'at most ' : ''}${counted(row.number('lag_entries'), 'entry', 'entries')} behind`
  const where = row.text('api_address')
  const state = row.text('connection_status')
  const isConnected = state === 'connected'
  const downtime = roundedDuration(row.number('disconnected_seconds') * 1000)
  const details = [downtime, row.text('disconnect_reason')].filter((detail) => detail !== '')
  const since = id === '' || isConnected ? '' : ` for ${details.join(': ')}`
  const marks = [
    ...(id === '' && row.boolean('sealed') ? [', sealed'] : []),
    ...(id !== '' && isConnected && !row.boolean('authenticated')
      ? [', not authenticated (it or this server is sealed?)']
      : []),
    ...(row.number('duplicate_connections') > 0 ? [', DUPLICATE CONNECTIONS'] : []),
  ].join('')
  return [
    id === '' ? 'Primary' : `Secondary ${escapeLine(id)}`,
    `${escapeLine(where)} ${state}${escapeLine(since)}${lag}${heartbeat(row)}${marks}`.trim(),
  ]
}

/** The age is measured by the server, because the clock of this machine may differ. */
function heartbeat(row: JsonFields): string {
  if (row.text('last_heartbeat') === '') return ''
  const ageMs = Number(row.text('replication_primary_canary_age_ms'))
  const skewMs = Number(row.text('clock_skew_ms'))
  return `, last heartbeat ${roundedDuration(ageMs)} ago, clock skew ${roundedSkew(skewMs)}`
}

const clusterAddr = {
  'primary-cluster-addr': text({
    placeholder: 'ADDR',
    help: 'Address (host:port) at which secondaries connect to this server',
    fallback: '',
  }),
}

const enable = defineCommand({
  name: 'operator dr enable',
  summary: 'Enable DR replication as a primary',
  details: [
    'With an activation token on standard input or in a file, the cluster becomes a secondary, as with "outpost',
    'operator dr join". Asks for confirmation on a terminal.',
    '',
    'Example: outpost operator dr enable',
    '         outpost operator dr token b         prints a token for "outpost operator dr join" on b',
  ].join('\n'),
  options: {
    ...clusterAddr,
    ...activationOptions,
    ...confirmOptions,
    ...coreOptions,
  },
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX },
  async run(values, operands, io) {
    const source = secretOperand(operands, 'activation token')
    const core = coreOf(values, io)
    if (source !== undefined) {
      await join(core, { ...values, token: source, shares: undefined }, io)
      return 0
    }
    const body = { primary_cluster_addr: values['primary-cluster-addr'] }
    await confirm(core, 'make this cluster a DR primary', values.yes, io)
    await change(core, 'primary/enable', body, 'This cluster is a DR primary. Next: outpost operator dr token ID', io)
    return 0
  },
})

const token = defineCommand({
  name: 'operator dr token',
  summary: 'Generate an activation token for a DR secondary',
  details: 'The token can be used once. ID identifies the secondary in the status and when its access is revoked.',
  options: {
    ttl: text({ placeholder: 'DURATION', help: 'TTL of the token', fallback: '30m' }),
    'public-key': text({
      placeholder: 'KEY',
      help: 'Public key of a secondary that cannot reach this API',
      fallback: '',
    }),
    ...coreOptions,
  },
  operands: { shown: 'ID', min: 1, max: 1 },
  async run(values, [id = ''], io) {
    const body = { id, ttl: values.ttl, secondary_public_key: values['public-key'] }
    const path = `${DR}/primary/secondary-token`
    const { fields } = await requireResponse(coreOf(values, io), { method: 'PUT', path, body })
    const wrapped = fieldsOf(fields.value('wrap_info')).text('token')
    const activation = wrapped || fieldsOf(fields.value('data')).text('token')
    printWarningLines(fields, io)
    if (activation === '') throw new CommandError('the server returned no activation token')
    io.out(`${activation}\n`)
    return 0
  },
})

const demote = defineCommand({
  name: 'operator dr demote',
  summary: 'Demote this DR primary to a secondary',
  details: [
    'A demoted primary does not serve secrets and does not connect to a primary. It keeps its data and can join',
    'another primary of the replication set without a full copy ("outpost operator dr join"). For a planned',
    'switchover, use "outpost operator dr switch". Asks for confirmation on a terminal.',
  ].join('\n'),
  options: { ...confirmOptions, ...coreOptions },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    await confirm(core, 'demote this DR primary: it does not serve secrets until it is promoted', values.yes, io)
    await change(core, 'primary/demote', {}, 'This cluster is a DR secondary.', io)
    return 0
  },
})

const disable = defineCommand({
  name: 'operator dr disable',
  summary: 'Disable DR replication',
  details: [
    'On a primary, disconnects the secondaries; requires sudo. On a secondary, requires an operation token on',
    'standard input or in a file (- prompts on a terminal); the secondary becomes an independent cluster',
    'with its current data. Asks for confirmation on a terminal.',
  ].join('\n'),
  options: { ...confirmOptions, ...coreOptions },
  operands: { shown: '[@FILE|-]', min: 0, max: OPERANDS_MAX },
  async run(values, operands, io) {
    const given = secretOperand(operands, 'operation token')
    const core = coreOf(values, io)
    if (given === undefined) {
      await confirm(core, 'disable DR on this primary and disconnect all its secondaries', values.yes, io)
      await change(core, 'primary/disable', {}, 'DR is disabled on this primary.', io)
      return 0
    }
    const operationToken = await readSecret(given, { what: 'operation token', prompt: 'Operation token: ' }, io)
    await confirm(
      core,
      'disable DR on this secondary: it no longer receives the changes of its primary',
      values.yes,
      io,
    )
    const body = { dr_operation_token: operationToken }
    await change(core, 'secondary/disable', body, 'DR is disabled on this secondary. It is an independent cluster.', io)
    return 0
  },
})

export const commands = [status, enable, token, demote, disable]
