/** The checks before a failover and before a planned switch, as in `outpost operator dr failover` and `outpost operator dr switch`. */
import {
  type DrReport,
  type DrStatus,
  isConnected,
  isDemoted,
  isReplaced,
  peersOf,
  shortDuration,
  entriesText,
} from './dr-status.ts'

export interface Check {
  readonly title: string
  /** `open`: this page cannot know it; the user decides. */
  readonly result: 'passed' | 'warning' | 'failed' | 'open'
  readonly text: string
}

/** Limit of a server for the clock of its primary: beyond it, the old primary could not join the new one. */
const SKEW_MAX_MS = 5 * 60_000
const LAG_MAX = 1000

export function hasFailed(checks: readonly Check[]): boolean {
  return checks.some(({ result }) => result === 'failed')
}

export function failoverChecks({ health, status }: DrReport): readonly Check[] {
  return [roleCheck(status), lagCheck(status), sealCheck(health.sealed), primaryCheck(status)]
}

function roleCheck(status: DrStatus): Check {
  const title = 'This server is a DR secondary'
  if (status.mode === 'bootstrapping') {
    return { title, result: 'failed', text: 'Its initial sync is not complete: it lacks data of its primary.' }
  }
  if (status.mode !== 'secondary') {
    return { title, result: 'failed', text: `Its mode is “${status.mode}”: open the page of the secondary.` }
  }
  if (isDemoted(status))
    return { title, result: 'passed', text: 'It is a demoted primary and does not follow another one.' }
  if (status.state === 'stream-wals') return { title, result: 'passed', text: 'It is connected to its primary.' }
  const reason = status.trouble ?? ''
  return {
    title,
    result: 'passed',
    text: `It is disconnected from its primary${reason === '' ? '.' : `: ${reason}`}`,
  }
}

/** Commits of the primary that may be lost. */
function lagCheck(status: DrStatus): Check {
  const title = 'No commits are lost'
  if (isDemoted(status)) return { title, result: 'passed', text: 'This server was the primary and has all commits.' }
  const { lag_entries: entries, lag_seconds: seconds } = status
  if (typeof entries !== 'number') {
    return { title, result: 'warning', text: 'The lag is unknown: no heartbeat since the start of this server.' }
  }
  if (entries > 0) return { title, result: 'warning', text: `${entriesText(entries)} behind at the last heartbeat.` }
  const age = typeof seconds === 'number' && seconds > 0 ? ` ${shortDuration(seconds * 1000)} ago` : ''
  const sync = status.sync === 'on' ? ' Replication is synchronous.' : ''
  const result = age === '' || status.sync === 'on' ? 'passed' : 'warning'
  return { title, result, text: `No lag at the last heartbeat${age}.${sync}` }
}

function sealCheck(isSealed: boolean): Check {
  const title = 'This server is unsealed'
  if (isSealed) return { title, result: 'failed', text: 'Unseal it first, with key shares of its primary: open Seal.' }
  return { title, result: 'passed', text: 'It is unsealed.' }
}

function primaryCheck(status: DrStatus): Check {
  const title = 'The primary is lost, or isolated from its callers'
  const address = peersOf(status)[0]?.api_address ?? ''
  if (isDemoted(status)) {
    return { title, result: 'open', text: 'Make sure that no other server was promoted instead.' }
  }
  if (status.state === 'stream-wals') {
    return {
      title,
      result: 'warning',
      text: `The primary ${address} is running and will be fenced. To avoid losing commits, start a planned switch on its page.`,
    }
  }
  if (address === '')
    return { title, result: 'open', text: 'Its address is unknown: make sure that no client reaches it.' }
  return {
    title,
    result: 'open',
    text: `This page cannot query ${address}. Make sure that no client reaches it: it serves requests until it receives the notice.`,
  }
}

/** `mayDemote`: the token may demote and issue activation tokens; undefined while the server has not said it. */
export function switchChecks(
  { health, status }: DrReport,
  secondaryId: string,
  mayDemote: boolean | undefined,
): readonly Check[] {
  const others = peersOf(status).flatMap(({ node_id: id }) => (id === secondaryId || id === undefined ? [] : [id]))
  return [
    primaryRoleCheck(status, health.version),
    ...secondaryChecks(status, secondaryId),
    permissionCheck(mayDemote),
    ...(others.length > 0
      ? [
          {
            title: 'Other secondaries',
            result: 'warning' as const,
            text: `${others.join(', ')}: they need new activation tokens afterwards.`,
          },
        ]
      : []),
  ]
}

function primaryRoleCheck(status: DrStatus, version: string): Check {
  const title = 'This server is the primary and accepts writes'
  if (status.mode === 'primary' && status.state === 'running') {
    return { title, result: 'passed', text: `Primary of epoch ${status.epoch ?? 0}, unsealed, version ${version}.` }
  }
  return { title, result: 'failed', text: `It does not: ${status.fence_detail ?? `its mode is “${status.mode}”`}` }
}

function secondaryChecks(status: DrStatus, id: string): readonly Check[] {
  const row = peersOf(status).find((one) => one.node_id === id)
  const title = `The secondary “${id}” has all commits`
  if (!row) return [{ title, result: 'failed', text: 'This primary does not know it.' }]
  const skewMs = Number(row.clock_skew_ms)
  return [
    connectionCheck(title, row),
    {
      title: 'The clocks agree',
      result: Math.abs(skewMs) > SKEW_MAX_MS ? 'failed' : 'passed',
      text: `They differ by ${shortDuration(skewMs)} (limit 5m).`,
    },
  ]
}

function connectionCheck(title: string, row: ReturnType<typeof peersOf>[number]): Check {
  const lag = row.lag_entries ?? 0
  if (!isConnected(row)) return { title, result: 'failed', text: 'It is not connected.' }
  if (row.is_whole === false) return { title, result: 'failed', text: 'Its initial sync is not complete.' }
  if (row.authenticated === false) return { title, result: 'failed', text: 'It is sealed: unseal it first.' }
  if (lag > LAG_MAX)
    return { title, result: 'failed', text: `It is ${entriesText(lag)} behind: wait until it has caught up.` }
  return { title, result: 'passed', text: `Connected, unsealed, ${entriesText(lag)} behind.` }
}

function permissionCheck(mayDemote: boolean | undefined): Check {
  const title = 'Your token may demote and issue activation tokens'
  const needs = '“update” and “sudo” on sys/replication/dr/primary/demote and …/primary/secondary-token.'
  if (mayDemote === true) return { title, result: 'passed', text: 'It may.' }
  if (mayDemote === undefined) {
    return { title, result: 'open', text: `The server has not returned its capabilities. It needs ${needs}` }
  }
  return { title, result: 'failed', text: `It needs ${needs}` }
}

/** The checks before a fenced primary is demoted. Nothing of them fails: the server decides, and `dr demote` checks nothing either. */
export function demotionChecks({ status }: DrReport): readonly Check[] {
  return [fenceCheck(status), fencedCommitsCheck(status), fencedPermissionCheck()]
}

function fenceCheck(status: DrStatus): Check {
  const title = 'Another server is the primary'
  const detail = status.fence_detail ?? ''
  if (isReplaced(status)) return { title, result: 'passed', text: `This server was ${detail}.` }
  return {
    title,
    result: 'warning',
    text: `This is not known: this server is fenced because of ${detail}. It serves again when a secondary connects. Demote it only if another server was promoted.`,
  }
}

/** Commits that the new primary lacks. An acknowledgment may have been lost, so the number is an upper limit. */
function fencedCommitsCheck(status: DrStatus): Check {
  const title = 'The new primary has all commits'
  const kept =
    'Commits that only this server has are lost: when it joins the new primary, they are moved to a file on its host.'
  const heir = isReplaced(status) ? heirOf(status) : undefined
  // After a restart of this server, the position may be unknown, which is 0.
  if (!heir?.last_acknowledged_wal) return { title, result: 'open', text: `This page cannot know it. ${kept}` }
  const { lag_entries: lag = 0 } = heir
  if (lag === 0) return { title, result: 'passed', text: 'It acknowledged all commits of this server.' }
  return {
    title,
    result: 'warning',
    text: `It has not acknowledged the last ${lag === 1 ? 'commit' : `${lag} commits`} of this server. ${kept}`,
  }
}

function heirOf(status: DrStatus): ReturnType<typeof peersOf>[number] | undefined {
  const { fenced_by: id = '', replaced_by: address = '' } = status
  const peers = peersOf(status)
  return (
    peers.find((peer) => address !== '' && peer.api_address === address) ?? peers.find((peer) => peer.node_id === id)
  )
}

/** A fenced core resolves no tokens for `sys/capabilities-self`. */
function fencedPermissionCheck(): Check {
  return {
    title: 'Your token may demote',
    result: 'open',
    text: 'A fenced server cannot read the capabilities of a token. It needs “update” and “sudo” on sys/replication/dr/primary/demote.',
  }
}
