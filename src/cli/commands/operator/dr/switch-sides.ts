/** The two servers of a planned change of roles: how they stand, how far the change is, and whether it may begin. */
import { type Answer, fieldsOf } from '../../../output/answer.ts'
import { CommandError } from '../../../framework/command-shape.ts'
import { sleep } from '../../../../platform/clock.ts'
import { type CoreAccess, requireCore } from '../../../core/core-access.ts'
import { shownName } from '../../../framework/shown.ts'
import { drStatus, otherSide } from './dr-access.ts'
import { roundedSkew } from './rounded.ts'
import type { Say } from './steps.ts'

/** A server refuses a primary whose clock differs by more: the old primary could not join the new one. */
const SKEW_MAX_MS = 5 * 60_000
const LAG_MAX = 1000
const CATCH_UP_MS = 60_000
const POLL_MS = 200
const DEMOTE = 'sys/replication/dr/primary/demote'
const TOKEN = 'sys/replication/dr/primary/secondary-token'

export interface Sides {
  /** The primary before the change. */
  readonly from: CoreAccess
  /** The primary after it. */
  readonly to: CoreAccess
}

export interface SideStatus {
  readonly where: string
  readonly fields: Answer
  readonly mode: string
  readonly isSealed: boolean
  readonly version: string
}

/** `begin`: nothing has changed yet. `promote`: the primary is demoted. `join`: the secondary is promoted. */
export type Stage = 'begin' | 'promote' | 'join' | 'done'

export async function sideStatus(core: CoreAccess): Promise<SideStatus> {
  const query = {
    sealedcode: '200',
    uninitcode: '200',
    drsecondarycode: '200',
    standbycode: '200',
    haunhealthycode: '200',
  }
  const [{ fields }, { fields: health }] = await Promise.all([
    drStatus(core),
    requireCore(core, { path: 'sys/health', query }),
  ])
  const version = /^v?\d+\.\d+\.\d+/.exec(health.text('outpost_version'))?.[0] ?? ''
  const { origin: where } = core.target.url
  return { where, fields, mode: fields.text('mode'), isSealed: health.boolean('sealed'), version }
}

/** Throws CommandError for servers between which no change of roles can begin or go on. */
export function stageOf(from: SideStatus, to: SideStatus): Stage {
  const modes = `${from.where} is "${from.mode}", ${to.where} is "${to.mode}"`
  if (from.where === to.where)
    throw new CommandError('both addresses are the same: -secondary is the server to promote')
  const [set, other] = [from.fields.text('cluster_id'), to.fields.text('cluster_id')]
  if (set !== other || set === '') throw new CommandError(`they are not of one replication set: ${modes}`)
  for (const { isSealed, where } of [from, to]) {
    if (isSealed)
      throw new CommandError(`${where} is sealed: "outpost operator unseal" there, with key shares of the primary`)
  }
  const state = from.fields.text('state')
  if (from.mode === 'primary' && to.mode === 'secondary') {
    if (state === 'running') return 'begin'
    throw new CommandError(
      `${from.where} takes no writes, its state is "${state}": ${shownName(from.fields.text('fence_detail'))}`,
    )
  }
  if (from.mode === 'secondary' && to.mode === 'secondary' && otherSide(from.fields).length === 0) return 'promote'
  if (from.mode === 'secondary' && to.mode === 'primary' && to.fields.text('state') === 'running') {
    return isFollowing(from) ? 'done' : 'join'
  }
  throw new CommandError(
    `no change of roles can begin: ${modes}; set OUTPOST_ADDR to the primary and -secondary to its secondary`,
  )
}

function isFollowing({ fields }: SideStatus): boolean {
  return fields.text('state') === 'stream-wals'
}

/** Throws CommandError, with nothing changed, where the change would be refused on the way, or could lose something. */
export async function checkSides({ from, to }: Sides, say: Say): Promise<void> {
  const [primary, secondary] = await Promise.all([sideStatus(from), sideStatus(to)])
  if (primary.version !== secondary.version) {
    throw new CommandError(
      `${primary.where} has version ${primary.version}, ${secondary.where} ${secondary.version}: the old primary could not follow a newer one, upgrade it first`,
    )
  }
  say(
    `${primary.where} is the primary of epoch ${primary.fields.number('epoch')}, unsealed, version ${primary.version}`,
  )
  const row = await untilCaughtUp(from, secondary)
  const skewMs = Number(row.text('clock_skew_ms'))
  if (Math.abs(skewMs) > SKEW_MAX_MS) {
    throw new CommandError(`the clocks differ by ${roundedSkew(skewMs)}, and 5m is the limit: set them right first`)
  }
  const id = secondary.fields.text('secondary_id')
  say(
    `${secondary.where} is its secondary "${shownName(id)}": it follows, unsealed, ${row.number('lag_entries')} entries behind, clock skew ${roundedSkew(skewMs)}`,
  )
  await requireRights(from)
  say('Your token may demote this primary and issue activation tokens')
  const others = otherSide(primary.fields).flatMap((one) => (one.text('node_id') === id ? [] : [one.text('node_id')]))
  if (others.length > 0) say(`Other secondaries need new activation tokens afterwards: ${shownName(others.join(', '))}`)
}

/** The row of the secondary in the status of its primary. */
async function untilCaughtUp(from: CoreAccess, secondary: SideStatus): Promise<Answer> {
  const id = secondary.fields.text('secondary_id')
  const deadlineMs = performance.now() + CATCH_UP_MS
  for (;;) {
    const { fields } = await drStatus(from)
    const row = otherSide(fields).find((one) => one.text('node_id') === id)
    const trouble = troubleOf(row)
    if (row && trouble === '') return row
    if (performance.now() > deadlineMs) {
      const why = shownName(secondary.fields.text('trouble'))
      throw new CommandError(
        `${secondary.where} cannot take over, ${trouble} at the primary${why === '' ? '' : ` (${why})`}; nothing has changed`,
      )
    }
    await sleep(POLL_MS)
  }
}

function troubleOf(row: Answer | undefined): string {
  if (!row) return 'it is not known'
  if (row.text('connection_status') !== 'connected') return 'it is not connected'
  if (!row.boolean('is_whole')) return 'its initial sync is not complete'
  if (!row.boolean('authenticated')) return 'it has not proven its key'
  return row.number('lag_entries') > LAG_MAX ? `it is ${row.number('lag_entries')} entries behind` : ''
}

async function requireRights(core: CoreAccess): Promise<void> {
  const request = { method: 'PUT', path: 'sys/capabilities-self', body: { paths: [DEMOTE, TOKEN] } } as const
  const { fields } = await requireCore(core, request)
  const data = fieldsOf(fields.value('data'))
  const missing = [DEMOTE, TOKEN].filter((path) => !mayChange(data.value(path)))
  if (missing.length === 0) return
  throw new CommandError(`your token needs "update" and "sudo" on ${missing.join(' and ')}; nothing has changed`)
}

function mayChange(capabilities: unknown): boolean {
  if (!Array.isArray(capabilities)) return false
  return capabilities.includes('root') || (capabilities.includes('sudo') && capabilities.includes('update'))
}

/** Resolves when both have the same log and the same entries. Throws CommandError where the secondary lacks commits. */
export async function untilEqual({ from, to }: Sides): Promise<number> {
  const deadlineMs = performance.now() + CATCH_UP_MS
  for (;;) {
    const [{ fields: one }, { fields: other }] = await Promise.all([drStatus(from), drStatus(to)])
    // Not the epoch: a secondary learns it with the first row of the epoch.
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
