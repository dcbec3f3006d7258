/** `outpost status` and `outpost operator status`: seal status and readiness. */
import { AgentRefusal } from '../client/http-client.ts'
import {
  sendRequest,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  STATUS_TIMEOUT_MS,
  unsealStep,
  type ReadyResponse,
  readinessOf,
  requireResponse,
  needsKeyShares,
} from '../core/core-access.ts'
import { formatOf, formatOption, pairsTable, printAs } from '../core/secret-output.ts'
import { type Command, CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { type JsonFields, fieldsOf, isJsonObject } from '../output/json.ts'

const SEALED = 2
const NOT_READY = 1

export function statusCommand(name: string): Command {
  return defineCommand({
    name,
    summary: 'Show the seal status and failing readiness checks',
    details: [
      'Exit code 0: all checks pass; 2: sealed or not initialized; 1: a check fails, the server is not reachable,',
      'or the command line is invalid. An agent without secrets uses 0 and 1 only.',
      'A server that does not respond within 10 s is not reachable.',
    ].join('\n'),
    options: { ...formatOption, ...coreOptions },
    usageExitCode: 1,
    run: (values, _operands, io) => show(values, io),
  })
}

export const command = statusCommand('status')

type StatusOptions = Parameters<typeof coreOf>[0] & Parameters<typeof formatOf>[0]

async function show(values: StatusOptions, io: CommandIo): Promise<number> {
  const core = coreOf(values, io)
  const readiness = await readinessOf(core.target)
  const seal = await sealStatus(core, readiness, io)
  if (!seal) return showReadiness(readiness, values, io)
  const leader = await leaderOf(core, seal.fields.boolean('sealed'))
  const status = { ...(isJsonObject(seal.body) ? seal.body : {}), ...leader, ...(readiness && { readiness }) }
  printAs(formatOf(values, io), status, io, () =>
    pairsTable([...statusRows(seal.fields, fieldsOf(leader)), ...readyRows(readiness)]),
  )
  const warnings = seal.fields.value('warnings')
  if (Array.isArray(warnings)) for (const warning of warnings) io.err(`warning: ${escapeLine(String(warning))}\n`)
  printFailingChecks(readiness, io)
  if (!seal.fields.boolean('sealed')) return readiness?.ready === false ? NOT_READY : 0
  const isInitialised = seal.fields.boolean('initialized')
  io.err(isInitialised ? `sealed, next: ${nextStep(readiness, seal.fields)}\n` : `${initialStep(readiness)}\n`)
  return SEALED
}

/** The server knows whether a database was lost. */
function initialStep(readiness: ReadyResponse | undefined): string {
  const reason = readiness?.checks.find(({ name }) => name === 'seal')?.reason ?? ''
  return reason.startsWith('not initialized') ? reason : 'not initialized, next: outpost operator init'
}

/** The server knows whether an operator sealed it; without its checks only the kind of seal is known. */
function nextStep(readiness: ReadyResponse | undefined, seal: JsonFields): string {
  const reason = readiness?.checks.find(({ name }) => name === 'seal')?.reason ?? ''
  return escapeLine(/^sealed, next: (.+)$/.exec(reason)?.[1] ?? unsealStep(seal))
}

/** Undefined for a process without secrets that reports its readiness. */
async function sealStatus(
  core: CoreAccess,
  readiness: ReadyResponse | undefined,
  io: CommandIo,
): Promise<CoreResponse | undefined> {
  try {
    return await requireResponse(core, { path: 'sys/seal-status', headTimeoutMs: STATUS_TIMEOUT_MS })
  } catch (error) {
    if (readiness && error instanceof AgentRefusal && error.status === 404) return undefined
    // A failing check may be the cause.
    printFailingChecks(readiness, io)
    throw error
  }
}

function showReadiness(readiness: ReadyResponse | undefined, values: StatusOptions, io: CommandIo): number {
  printAs(formatOf(values, io), { readiness }, io, () => pairsTable(readyRows(readiness)))
  printFailingChecks(readiness, io)
  return readiness?.ready ? 0 : NOT_READY
}

function readyRows(readiness: ReadyResponse | undefined): [string, unknown][] {
  if (!readiness) return []
  const reason = readiness.checks.find(({ name }) => name === 'replication')?.reason
  return [
    ['Ready', readiness.ready],
    ['Role', readiness.role],
    ...(readiness.role === 'fenced' && reason !== undefined ? [['Fence Reason', reason] as [string, unknown]] : []),
  ]
}

/** Prints failing checks except the seal, which has its own message. */
function printFailingChecks(readiness: ReadyResponse | undefined, io: CommandIo): void {
  for (const warning of readiness?.warnings ?? []) io.err(`warning: ${escapeLine(warning)}\n`)
  for (const { name, reason, state } of readiness?.checks ?? []) {
    if (state !== 'ok' && name !== 'seal') io.err(`not ready: ${escapeLine(`${name}: ${reason}`)}\n`)
  }
}

const LEADER_FIELDS = [
  'ha_enabled',
  'is_self',
  'active_time',
  'leader_address',
  'leader_cluster_address',
  'raft_committed_index',
  'raft_applied_index',
]

/** Empty if the server does not answer. A sealed server refuses the request only with high availability. */
async function leaderOf(core: CoreAccess, isSealed: boolean): Promise<Readonly<Record<string, unknown>>> {
  try {
    const answer = await sendRequest(core, { path: 'sys/leader', headTimeoutMs: STATUS_TIMEOUT_MS })
    const members = LEADER_FIELDS.map((name) => [name, answer?.fields.value(name)] as const)
    return Object.fromEntries(members.filter(([, value]) => value !== undefined))
  } catch (error) {
    if (isSealed && error instanceof AgentRefusal && error.status === 503) return { ha_enabled: true }
    if (error instanceof CommandError) return {}
    throw error
  }
}

function statusRows(seal: JsonFields, leader: JsonFields): [string, unknown][] {
  const isSealed = seal.boolean('sealed')
  const keys = seal.boolean('recovery_seal') ? 'Recovery' : 'Total'
  const rows: [string, unknown][] = [
    ['Seal Type', seal.value('type')],
    ['Initialized', seal.boolean('initialized')],
    ['Sealed', isSealed],
    [`${keys} Shares`, seal.number('n')],
    ['Threshold', seal.number('t')],
  ]
  if (isSealed && needsKeyShares(seal)) {
    rows.push(['Unseal Progress', `${seal.number('progress')}/${seal.number('t')}`])
    rows.push(['Unseal Nonce', seal.text('nonce')])
  }
  if (seal.boolean('migration')) rows.push(['Seal Migration in Progress', true])
  rows.push(
    ['Version', seal.value('outpost_version') ?? seal.value('version')],
    ['Storage Type', seal.value('storage_type')],
  )
  if (seal.text('cluster_name') !== '') rows.push(['Cluster Name', seal.text('cluster_name')])
  if (seal.text('cluster_id') !== '') rows.push(['Cluster ID', seal.text('cluster_id')])
  if (leader.value('ha_enabled') === undefined) return rows
  rows.push(['HA Enabled', leader.boolean('ha_enabled')])
  return leader.boolean('ha_enabled') ? [...rows, ...haRows(leader, isSealed)] : rows
}

/** As the stock command shows them. */
function haRows(leader: JsonFields, isSealed: boolean): [string, unknown][] {
  if (isSealed) return [['HA Mode', 'sealed']]
  const isActive = leader.boolean('is_self')
  const [committed, applied] = [leader.number('raft_committed_index'), leader.number('raft_applied_index')]
  return [
    ['HA Cluster', leader.text('leader_cluster_address') || 'n/a'],
    ['HA Mode', isActive ? 'active' : 'standby'],
    isActive
      ? ['Active Since', leader.text('active_time')]
      : ['Active Node Address', leader.text('leader_address') || '<none>'],
    ...(committed > 0 ? [['Raft Committed Index', committed] as [string, unknown]] : []),
    ...(applied > 0 ? [['Raft Applied Index', applied] as [string, unknown]] : []),
  ]
}
