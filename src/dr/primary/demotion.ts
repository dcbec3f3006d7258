/**
 * The first half of a demotion: the core closes and the state says `secondary`. A demotion in favor of a secondary (`secondaryId`)
 * loses no commit: writes stop, the secondary proves that it has the whole log, and only then the state changes. If the secondary
 * does not, the primary serves again. After a crash before the change of the state the cluster is still the primary, because the
 * next start sets the role of the store from the state.
 */
import { sleep } from '../../platform/clock.ts'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { LinkTimings, ReplicationContext } from '../state/replication-context.ts'
import type { Primary } from './primary.ts'
import type { ReplicationState } from '../state/replication-state.ts'

const POLL_INTERVAL_MS = 20

export interface DemotionContext extends Pick<ReplicationContext, 'store' | 'transition' | 'logger'> {
  readonly state: ReplicationState
  readonly times: LinkTimings
}

/** Rejects with a Refusal, without changes, if the secondary `secondaryId` does not have everything. */
export async function beginDemotion(
  context: DemotionContext,
  primary: Primary | undefined,
  secondaryId: string,
): Promise<void> {
  if (secondaryId === '') return stepDown(context, primary)
  const { state, store, transition } = context
  requireReady(primary, secondaryId)
  try {
    await transition.toSecondary()
    // Prevents commits also if the cluster is unsealed meanwhile.
    await store.setRole('replica')
    await untilComplete(context, primary, secondaryId)
    await state.change(() => secondaryOf(context))
  } catch (error) {
    await serveAgain(context)
    throw error
  }
  primary?.failWaitingCommits()
}

async function stepDown(context: DemotionContext, primary: Primary | undefined): Promise<void> {
  const { state, transition } = context
  await state.change(() => secondaryOf(context))
  try {
    await transition.toSecondary()
  } catch (error) {
    await state.change(() => ({ mode: 'primary', needsToken: false }))
    throw error
  }
  await primary?.drain()
}

function secondaryOf({ store }: DemotionContext) {
  return { mode: 'secondary', needsToken: true, upstream: undefined, provenEpoch: store.epoch } as const
}

/** Throws a Refusal. */
function requireReady(primary: Primary | undefined, id: string): void {
  const connected = primary?.connected.get(id)
  if (connected?.isWhole && connected.isAuthenticated) return
  const incomplete = connected?.isWhole ? 'it is sealed' : 'its initial sync is not complete'
  const why = connected ? incomplete : 'it is not connected'
  throw new Refusal('conflict', `the secondary "${id}" cannot take over: ${why}; nothing has changed`)
}

/** Rejects with a Refusal if the secondary does not prove within `handoverMs` that it has the whole log. */
async function untilComplete(
  { store, times }: DemotionContext,
  primary: Primary | undefined,
  id: string,
): Promise<void> {
  const { sequence } = store.position()
  const proven = () => primary?.connected.get(id)?.proven ?? 0
  const untilMs = performance.now() + times.handoverMs
  while (proven() < sequence) {
    if (performance.now() > untilMs) {
      const behind = `the secondary "${id}" lacks ${sequence - proven()} commits after ${times.handoverMs / 1000} s`
      throw new Refusal('unavailable', `${behind}: this cluster is still the primary and accepts writes again`)
    }
    await sleep(POLL_INTERVAL_MS)
  }
}

async function serveAgain({ logger, state, store, transition }: DemotionContext): Promise<void> {
  try {
    if (!state.now.deposed && store.role === 'replica') await store.setRole('own')
    await transition.toPrimary()
  } catch (error) {
    logger.error('demotion failed and the secrets core did not reopen, unseal this server', {
      error: messageOf(error),
    })
  }
}
