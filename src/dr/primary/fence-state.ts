/** Why a primary is fenced. The texts are for every caller, so they name clusters and addresses and no paths. */
import type { ReplicationParts } from '../state/parts.ts'
import type { State } from '../state/state.ts'

export interface FenceState {
  /** `replaced`: another cluster was promoted. `isolated`: no secondary was heard for `fence_after`. */
  readonly reason: 'replaced' | 'isolated'
  /** The same in words, with names and times. */
  readonly text: string
}

interface FencedParts {
  readonly parts: Pick<ReplicationParts, 'settings'> & { readonly store: Pick<ReplicationParts['store'], 'role'> }
  readonly state: Pick<State, 'deposed' | 'mode'>
}

/** Undefined for a cluster that is no primary, or takes writes. `silenceMs`: since a secondary was heard last. */
export function fenceStateOf({ parts, state }: FencedParts, silenceMs: () => number): FenceState | undefined {
  if (state.mode !== 'primary' || parts.store.role === 'own') return undefined
  if (state.deposed) return { reason: 'replaced', text: replacedText(state.deposed) }
  const [silent, limit] = [silenceMs(), parts.settings.fenceAfterMs].map((ms) => Math.round(ms / 1000))
  return { reason: 'isolated', text: `no secondary heard for ${silent} s (fence_after is ${limit} s)` }
}

function replacedText({ addresses, api, heir, provenBy }: NonNullable<State['deposed']>): string {
  const where = api || addresses.join(', ')
  if (heir !== undefined) return `replaced by "${heir}" at ${where}`
  return `replaced by a cluster at ${where}${provenBy === undefined ? '' : `, reported by "${provenBy}"`}`
}
