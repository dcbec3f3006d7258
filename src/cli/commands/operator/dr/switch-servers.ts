/** The two servers of a planned switchover: their status, the stage of the switchover, and its preconditions. */
import { type JsonFields, fieldsOf } from '../../../output/json.ts'
import { CommandError } from '../../../framework/define-command.ts'
import { sleep } from '../../../../platform/clock.ts'
import { type CoreAccess, requireResponse } from '../../../core/core-access.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'
import { drStatus, peersOf, roundedSkew } from './dr-access.ts'
import type { StepReporter } from './progress.ts'

/** Limit of a server for the clock of its primary: beyond it, the old primary could not join the new one. */
const SKEW_MAX_MS = 5 * 60_000
const LAG_MAX = 1000
const CATCH_UP_MS = 60_000
const POLL_MS = 200
const DEMOTE = 'sys/replication/dr/primary/demote'
const TOKEN = 'sys/replication/dr/primary/secondary-token'

export interface SwitchServers {
  /** The primary before the switchover. */
  readonly from: CoreAccess
  /** The primary after the switchover. Without a token: its address is verified by the status of both servers only. */
  readonly to: CoreAccess
}

export interface ServerStatus {
  readonly origin: string
  readonly fields: JsonFields
  readonly mode: string
  readonly isSealed: boolean
  readonly version: string
}

/** The next step. `demote`: nothing has changed; `promote`: the primary is demoted; `join`: the secondary is promoted. */
export type SwitchStage = 'demote' | 'promote' | 'join' | 'done'

export async function serverStatus(core: CoreAccess): Promise<ServerStatus> {
  const query = {
    sealedcode: '200',
    uninitcode: '200',
    drsecondarycode: '200',
    standbycode: '200',
    haunhealthycode: '200',
  }
  const [{ fields }, { fields: health }] = await Promise.all([
    drStatus(core),
    requireResponse(core, { path: 'sys/health', query }),
  ])
  const version = /^v?\d+\.\d+\.\d+/.exec(health.text('outpost_version'))?.[0] ?? ''
  const { origin } = core.target.url
  return { origin, fields, mode: fields.text('mode'), isSealed: health.boolean('sealed'), version }
}

/** Throws CommandError for servers between which a switchover can neither start nor continue. */
export function stageOf(from: ServerStatus, to: ServerStatus): SwitchStage {
  const modes = `${from.origin} is "${from.mode}", ${to.origin} is "${to.mode}"`
  if (from.origin === to.origin)
    throw new CommandError('OUTPOST_ADDR and -secondary are the same address: -secondary is the server to promote')
  const [set, other] = [from.fields.text('cluster_id'), to.fields.text('cluster_id')]
  if (set !== other || set === '')
    throw new CommandError(`the servers do not belong to the same replication set: ${modes}`)
  for (const { isSealed, origin } of [from, to]) {
    if (isSealed)
      throw new CommandError(`${origin} is sealed: run "outpost operator unseal" there with key shares of the primary`)
  }
  const state = from.fields.text('state')
  if (from.mode === 'primary' && to.mode === 'secondary') {
    if (state === 'running') return 'demote'
    throw new CommandError(
      `${from.origin} does not accept writes (state "${state}"): ${escapeLine(from.fields.text('fence_detail'))}`,
    )
  }
  if (from.mode === 'secondary' && to.mode === 'secondary' && peersOf(from.fields).length === 0) return 'promote'
  if (from.mode === 'secondary' && to.mode === 'primary' && to.fields.text('state') === 'running') {
    return isFollowing(from) ? 'done' : 'join'
  }
  throw new CommandError(
    `cannot switch roles: ${modes}; set OUTPOST_ADDR to the primary and -secondary to its secondary`,
  )
}

function isFollowing({ fields }: ServerStatus): boolean {
  return fields.text('state') === 'stream-wals'
}

/** Throws CommandError, with nothing changed, if a later step would fail or commits could be lost. */
export async function checkServers({ from, to }: SwitchServers, report: StepReporter): Promise<void> {
  const [primary, secondary] = await Promise.all([serverStatus(from), serverStatus(to)])
  if (primary.version !== secondary.version) {
    throw new CommandError(
      `versions differ: ${primary.origin} has ${primary.version}, ${secondary.origin} has ${secondary.version}; upgrade the older server first`,
    )
  }
  report(
    `${primary.origin} is the primary of epoch ${primary.fields.number('epoch')}, unsealed, version ${primary.version}`,
  )
  const row = await untilCaughtUp(from, secondary)
  const skewMs = Number(row.text('clock_skew_ms'))
  if (Math.abs(skewMs) > SKEW_MAX_MS) {
    throw new CommandError(`the clocks differ by ${roundedSkew(skewMs)} (limit 5m): correct them first`)
  }
  const id = secondary.fields.text('secondary_id')
  const known = row.text('api_address')
  if (known !== '' && URL.parse(known)?.origin !== secondary.origin) {
    report(
      `Warning: the primary knows its secondary at ${escapeLine(known)}, -secondary is ${secondary.origin}: make sure that it is the same server`,
    )
  }
  report(
    `${secondary.origin} is its secondary "${escapeLine(id)}": connected, unsealed, ${row.number('lag_entries')} entries behind, clock skew ${roundedSkew(skewMs)}`,
  )
  await requirePermissions(from)
  report('Your token may demote this primary and generate activation tokens')
  const others = peersOf(primary.fields).flatMap((one) => (one.text('node_id') === id ? [] : [one.text('node_id')]))
  if (others.length > 0)
    report(`Other secondaries need new activation tokens afterwards: ${escapeLine(others.join(', '))}`)
}

/** The row of the secondary in the status of its primary. */
async function untilCaughtUp(from: CoreAccess, secondary: ServerStatus): Promise<JsonFields> {
  const id = secondary.fields.text('secondary_id')
  const deadlineMs = performance.now() + CATCH_UP_MS
  for (;;) {
    const { fields } = await drStatus(from)
    const row = peersOf(fields).find((one) => one.text('node_id') === id)
    const problem = problemOf(row)
    if (row && problem === '') return row
    if (performance.now() > deadlineMs) {
      const why = escapeLine(secondary.fields.text('trouble'))
      throw new CommandError(
        `${secondary.origin} cannot be promoted: according to the primary, ${problem}${why === '' ? '' : ` (${why})`}; nothing was changed`,
      )
    }
    await sleep(POLL_MS)
  }
}

function problemOf(row: JsonFields | undefined): string {
  if (!row) return 'it is unknown'
  if (row.text('connection_status') !== 'connected') return 'it is not connected'
  if (!row.boolean('is_whole')) return 'its initial sync is not complete'
  if (!row.boolean('authenticated')) return 'it is not authenticated'
  return row.number('lag_entries') > LAG_MAX ? `it is ${row.number('lag_entries')} entries behind` : ''
}

async function requirePermissions(core: CoreAccess): Promise<void> {
  const request = { method: 'PUT', path: 'sys/capabilities-self', body: { paths: [DEMOTE, TOKEN] } } as const
  const { fields } = await requireResponse(core, request)
  const data = fieldsOf(fields.value('data'))
  const missing = [DEMOTE, TOKEN].filter((path) => !mayChange(data.value(path)))
  if (missing.length === 0) return
  throw new CommandError(`your token needs "update" and "sudo" on ${missing.join(' and ')}; nothing was changed`)
}

function mayChange(capabilities: unknown): boolean {
  if (!Array.isArray(capabilities)) return false
  return capabilities.includes('root') || (capabilities.includes('sudo') && capabilities.includes('update'))
}

/** Resolves when both have the same log and entries. Throws CommandError if the secondary lacks commits. */
export async function untilEqual({ from, to }: SwitchServers): Promise<number> {
  const deadlineMs = performance.now() + CATCH_UP_MS
  for (;;) {
    const [{ fields: one }, { fields: other }] = await Promise.all([drStatus(from), drStatus(to)])
    // The epoch is not compared: a secondary receives it with the first row of the epoch.
    const isSame = ['position', 'merkle_root'].every((name) => one.value(name) === other.value(name))
    if (isSame && one.text('merkle_root') !== '') return one.number('position')
    if (performance.now() > deadlineMs) {
      const positions = `position ${other.number('position')} of ${one.number('position')}`
      throw new CommandError(
        `${to.target.url.origin} does not have all commits of ${from.target.url.origin}: ${positions}`,
      )
    }
    await sleep(POLL_MS)
  }
}
