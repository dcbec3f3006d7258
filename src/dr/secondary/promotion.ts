/** Promotion: what keeps a secondary from it, and the state that it leaves. */
import type { ReplicaStore } from '../../storage/store/replica.ts'
import type { Secondary } from './secondary.ts'
import type { ReplicationState, State } from '../state/state.ts'

/** Undefined when nothing that was received would be lost, all of it is of one history, and no other cluster is known to have been promoted. */
export function whyNotReady(
  store: Pick<ReplicaStore, 'isWhole'>,
  { upstream }: State,
  secondary: Pick<Secondary, 'isDiverged' | 'replaced'> | undefined,
): string | undefined {
  if (!store.isWhole) return 'replication is still catching up: the copy of the primary is not whole'
  if (upstream && !upstream.hasJoined)
    return 'replication is still catching up: the primary was never reached since update-primary'
  if (secondary?.isDiverged) return 'replication is still catching up: the history of the primary is another one'
  const replaced = secondary?.replaced
  return replaced === undefined ? undefined : `another cluster may be the primary already (${replaced})`
}

/** The steps that must survive a crash. Idempotent: `promoting` of the state is set before and cleared by the last step. */
export async function becomePrimary(
  { state, store }: { readonly state: ReplicationState; readonly store: ReplicaStore },
  epoch: number,
): Promise<void> {
  const { checksum, sequence } = store.position()
  const fork = { sequence, epoch, checksum: Buffer.from(checksum) }
  await store.setRole('own', epoch)
  if (!store.isWhole) await store.finishCopy()
  await state.change(({ forks, upstream }) => ({
    mode: 'primary',
    authority: undefined,
    secondaries: [],
    upstream: undefined,
    needsToken: false,
    forks: [...forks, fork],
    notice: upstream && { upstream, epoch, fork },
    promoting: undefined,
    provenEpoch: epoch,
    deposed: undefined,
    ownSince: undefined,
    witnessEpoch: undefined,
    lastReindexMs: 0,
  }))
}
