/** `outpost status` and `outpost operator status`: whether the secrets are open, and whether the process is ready. */
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { type Readiness, readinessOf } from '../../client/readiness.ts'
import { askCore, type CoreAccess, type CoreAnswer, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { openingStep, takesShares } from '../../core/opening-step.ts'
import { formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'
import { shownName } from '../../framework/shown.ts'

const SEALED = 2
const NOT_READY = 1

const shape = {
  summary: 'Show whether the secrets are open, and what keeps the process from being ready',
  details: [
    'Exit code 0: every check is ok; 2: sealed or not initialized; 1: a check fails, the server',
    'cannot be reached, or the command line is wrong. An agent without secrets has 0 and 1 only.',
  ].join('\n'),
  options: { ...formatOption, ...coreOptions },
  usageExitCode: 1,
}

export const command = defineCommand({ name: 'status', ...shape, run: (values, _operands, io) => show(values, io) })
export const operatorStatus = defineCommand({
  name: 'operator status',
  ...shape,
  run: (values, _operands, io) => show(values, io),
})

type Values = Parameters<typeof coreOf>[0] & Parameters<typeof formatOf>[0]

async function show(values: Values, io: CommandIo): Promise<number> {
  const core = coreOf(values, io)
  const readiness = await readinessOf(core.target)
  const seal = await sealStatus(core, readiness, io)
  if (!seal) return showReadiness(readiness, values, io)
  const leader = await leaderOf(core)
  const status = { ...(isJsonObject(seal.body) ? seal.body : {}), ...leader, ...(readiness && { readiness }) }
  printAs(formatOf(values, io), status, io, () =>
    pairsTable([...statusRows(seal.fields, fieldsOf(leader)), ...readyRows(readiness)]),
  )
  const warnings = seal.fields.value('warnings')
  if (Array.isArray(warnings)) for (const warning of warnings) io.err(`warning: ${shownName(String(warning))}\n`)
  remark(readiness, io)
  if (!seal.fields.boolean('sealed')) return readiness?.ready === false ? NOT_READY : 0
  const isInitialised = seal.fields.boolean('initialized')
  io.err(isInitialised ? `sealed, next: ${stepFrom(readiness, seal.fields)}\n` : `${beginningFrom(readiness)}\n`)
  return SEALED
}

/** The server knows whether there was a database before. */
function beginningFrom(readiness: Readiness | undefined): string {
  const reason = readiness?.checks.find(({ name }) => name === 'seal')?.reason ?? ''
  return reason.startsWith('not initialized') ? reason : 'not initialized, next: outpost operator init'
}

/** The server knows whether it was sealed on purpose; an answer without its checks tells the kind of seal only. */
function stepFrom(readiness: Readiness | undefined, seal: Answer): string {
  const reason = readiness?.checks.find(({ name }) => name === 'seal')?.reason ?? ''
  return shownName(/^sealed, next: (.+)$/.exec(reason)?.[1] ?? openingStep(seal))
}

/** Undefined where the process has no secrets, and has told whether it is ready. */
async function sealStatus(
  core: CoreAccess,
  readiness: Readiness | undefined,
  io: CommandIo,
): Promise<CoreAnswer | undefined> {
  try {
    return await requireCore(core, { path: 'sys/seal-status' })
  } catch (error) {
    if (readiness && error instanceof RefusedByAgent && error.status === 404) return undefined
    // Why it can not be asked, perhaps.
    remark(readiness, io)
    throw error
  }
}

function showReadiness(readiness: Readiness | undefined, values: Values, io: CommandIo): number {
  printAs(formatOf(values, io), { readiness }, io, () => pairsTable(readyRows(readiness)))
  remark(readiness, io)
  return readiness?.ready ? 0 : NOT_READY
}

function readyRows(readiness: Readiness | undefined): [string, unknown][] {
  if (!readiness) return []
  return [
    ['Ready', readiness.ready],
    ['Role', readiness.role],
  ]
}

/** What keeps the process from being ready, beside the seal, which has a remark of its own. */
function remark(readiness: Readiness | undefined, io: CommandIo): void {
  for (const warning of readiness?.warnings ?? []) io.err(`warning: ${shownName(warning)}\n`)
  for (const { name, reason, state } of readiness?.checks ?? []) {
    if (state !== 'ok' && name !== 'seal') io.err(`not ready: ${shownName(`${name}: ${reason}`)}\n`)
  }
}

const LEADER = ['ha_enabled', 'is_self', 'active_time', 'leader_address', 'leader_cluster_address']

/** A sealed server may not say, and one without high availability has nothing to say. */
async function leaderOf(core: CoreAccess): Promise<Readonly<Record<string, unknown>>> {
  try {
    const answer = await askCore(core, { path: 'sys/leader' })
    const told = LEADER.map((name) => [name, answer?.fields.value(name)] as const)
    return Object.fromEntries(told.filter(([, value]) => value !== undefined))
  } catch (error) {
    if (error instanceof CommandError) return {}
    throw error
  }
}

function statusRows(seal: Answer, leader: Answer): [string, unknown][] {
  const isSealed = seal.boolean('sealed')
  const keys = seal.boolean('recovery_seal') ? 'Recovery' : 'Total'
  const rows: [string, unknown][] = [
    ['Seal Type', seal.value('type')],
    ['Initialized', seal.boolean('initialized')],
    ['Sealed', isSealed],
    [`${keys} Shares`, seal.number('n')],
    ['Threshold', seal.number('t')],
  ]
  if (isSealed && takesShares(seal)) {
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
  if (leader.boolean('ha_enabled')) rows.push(['Active Node Address', leader.text('leader_address') || '<none>'])
  return rows
}
