/** One sentence that tells whether a failover would work now, and what to do if not. */
import {
  type DrReport,
  type DrStatus,
  isConnected,
  isDemoted,
  type Peer,
  peersOf,
  shortDuration,
  entriesText,
} from './dr-status.ts'

export interface DrSummary {
  readonly kind: 'good' | 'warning' | 'bad'
  readonly text: string
}

/** The server warns beyond this skew as well. */
const SKEW_WARNING_MS = 30_000
const LAG_WARNING_ENTRIES = 1000
const LAG_WARNING_SECONDS = 30

export function drSummary({ health, status }: DrReport): DrSummary {
  if (status.mode === 'primary') return primarySummary(status)
  if (status.mode === 'secondary' || status.mode === 'bootstrapping') return secondarySummary(status, health.sealed)
  if (status.mode === 'disabled') {
    return { kind: 'warning', text: 'Not replicated: DR replication is off, the secrets exist on this cluster only.' }
  }
  return { kind: 'bad', text: `The replication mode is “${status.mode}”: check the log of the server.` }
}

function bad(text: string): DrSummary {
  return { kind: 'bad', text }
}

function warning(text: string): DrSummary {
  return { kind: 'warning', text }
}

function primarySummary(status: DrStatus): DrSummary {
  if (status.state !== 'running') {
    const by = status.replaced_by ?? ''
    if (by !== '') {
      return bad(`Fenced: ${by} was promoted and is the primary. Direct the callers to it, then demote this server.`)
    }
    return bad(`Fenced: this primary serves no secrets. ${status.fence_detail ?? ''}`)
  }
  const trouble = status.trouble ?? ''
  if (trouble !== '') return bad(`Trouble: ${trouble}`)
  const secondaries = peersOf(status)
  if (secondaries.length === 0) return warning('Not replicated: no secondary has joined this primary.')
  const problem = firstProblem(secondaries)
  if (problem) return problem
  if (status.corrupted_merkle_tree) return bad('Damaged entries: switch the roles to repair this primary.')
  if (status.sync === 'degraded') {
    return warning('Degraded: synchronous replication is on, but commits do not wait for a secondary.')
  }
  const names = secondaries.map(nameOf).join(', ')
  const behind = Math.max(...secondaries.map(({ lag_entries: lag = 0 }) => lag))
  const lag = behind === 0 ? 'no lag' : `${entriesText(behind)} behind`
  return { kind: 'good', text: `Healthy: ${names} ${secondaries.length === 1 ? 'is' : 'are'} connected, ${lag}.` }
}

/** The worst first. */
function firstProblem(secondaries: readonly Peer[]): DrSummary | undefined {
  const gone = secondaries.filter((one) => !isConnected(one))
  const [first] = gone
  if (first) {
    const others = gone.length > 1 ? ` and ${gone.length - 1} more` : ''
    const reason = first.disconnect_reason ?? ''
    return bad(
      `Not protected: ${nameOf(first)}${others} disconnected ${ago(first)}${reason === '' ? '' : ` (${reason})`}. New secrets are not replicated to it.`,
    )
  }
  const partial = secondaries.find(({ is_whole: isWhole }) => isWhole === false)
  if (partial)
    return warning(`Not protected yet: ${nameOf(partial)} is performing its initial sync and cannot be promoted.`)
  const sealed = secondaries.find(({ authenticated }) => authenticated === false)
  if (sealed)
    return warning(`Replicated, but ${nameOf(sealed)} is sealed: unseal it, so that it can be promoted at once.`)
  const late = secondaries.find(isLate)
  if (late)
    return warning(
      `Behind: ${nameOf(late)} lacks ${entriesText(late.lag_entries ?? 0)}. Check the network and its disk.`,
    )
  const skewed = secondaries.find(({ clock_skew_ms: skew }) => Math.abs(Number(skew)) > SKEW_WARNING_MS)
  if (skewed) {
    return warning(
      `Replicated, but the clocks of this server and ${nameOf(skewed)} differ by ${shortDuration(Number(skewed.clock_skew_ms))}: check NTP.`,
    )
  }
  return undefined
}

function ago({ disconnected_seconds: seconds = 0 }: Peer): string {
  return seconds > 0 ? `${shortDuration(seconds * 1000)} ago` : 'now'
}

function isLate({ lag_entries: entries = 0, lag_seconds: seconds = 0 }: Peer): boolean {
  return entries > LAG_WARNING_ENTRIES || seconds > LAG_WARNING_SECONDS
}

export function nameOf(peer: Peer): string {
  return peer.node_id ?? (peer.api_address || peer.cluster_address)
}

function secondarySummary(status: DrStatus, isSealed: boolean): DrSummary {
  if (isDemoted(status)) {
    return warning(
      'Demoted: this server serves no secrets and follows no primary. Join the new primary, or fail over to this server.',
    )
  }
  const [primary] = peersOf(status)
  const name = primary ? nameOf(primary) : 'its primary'
  const trouble = status.trouble ?? ''
  if (status.mode === 'bootstrapping') {
    const why = trouble === '' ? '' : ` Trouble: ${trouble}`
    return warning(`Not ready: the initial sync from ${name} is not complete, so this server cannot be promoted.${why}`)
  }
  if (status.state !== 'stream-wals') {
    const why = trouble === '' ? '' : ` (${trouble})`
    return bad(`Disconnected from ${name}${why}. If the primary is lost, fail over.`)
  }
  if (isSealed) return warning(`Replicated, but this secondary is sealed: unseal it with key shares of ${name}.`)
  if (status.corrupted_merkle_tree) return bad('Damaged entries: the server copies them from its primary again.')
  const lag = status.lag_entries ?? 0
  if (lag > LAG_WARNING_ENTRIES) return warning(`Behind: this secondary lacks ${entriesText(lag)} of ${name}.`)
  return {
    kind: 'good',
    text: `Healthy: this secondary follows ${name}, ${lag === 0 ? 'no lag' : `${entriesText(lag)} behind`}.`,
  }
}
