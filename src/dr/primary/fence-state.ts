/** Why a primary is fenced. The texts are for every caller, so they name clusters and addresses and no paths. */
import type { ReplicationParts } from '../state/parts.ts'
import type { State } from '../state/state.ts'
import type { Primary } from './primary.ts'

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

/** Undefined for a cluster that is no primary, or takes writes. */
export function fenceStateOf(
  { parts, state }: FencedParts,
  primary: Pick<Primary, 'silenceMs' | 'active' | 'followers' | 'presence'> | undefined,
): FenceState | undefined {
  if (state.mode !== 'primary' || parts.store.role === 'own') return undefined
  if (state.deposed) return { reason: 'replaced', text: replacedText(state.deposed) }
  const [silent, limit] = [primary?.silenceMs ?? 0, parts.settings.fenceAfterMs].map((ms) => Math.round(ms / 1000))
  const unauthenticated = (primary?.active ?? []).flatMap(({ id }) => {
    const follower = primary?.followers.get(id)
    return primary?.presence.isConnected(id, follower) && !follower?.isAuthenticated ? [id] : []
  })
  return { reason: 'isolated', text: isolatedText(`${silent} s (fence_after is ${limit} s)`, unauthenticated) }
}

/** A connected secondary without a proof of membership does not end the silence: most often it is sealed after a restart. */
function isolatedText(silence: string, unauthenticated: readonly string[]): string {
  if (unauthenticated.length === 0) return `no secondary heard for ${silence}`
  const names = unauthenticated.map((id) => `"${id}"`).join(', ')
  return `no authenticated secondary heard for ${silence}, connected and not authenticated (sealed?): ${names}`
}

function replacedText({ addresses, api, heir, provenBy }: NonNullable<State['deposed']>): string {
  const where = api || addresses.join(', ')
  if (heir !== undefined) return `replaced by "${heir}" at ${where}`
  return `replaced by a cluster at ${where}${provenBy === undefined ? '' : `, reported by "${provenBy}"`}`
}
