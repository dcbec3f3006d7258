/**
 * The first half of a demotion: the core closes and the state says `secondary`. A demotion in favour of a secondary (`secondaryId`)
 * loses no commit: writes end first, the secondary proves that it has the whole log, and only then the state changes. If the
 * secondary does not, the primary serves again. A crash before the change of the state leaves a primary, because the next start
 * gives the store the role that the state has.
 */
import { sleep } from '../../platform/clock.ts'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { LinkTimings, ReplicationParts } from '../state/parts.ts'
import type { Primary } from './primary.ts'
import type { ReplicationState } from '../state/state.ts'

/** Between two looks at a condition that is waited for. */
const LOOK_MS = 20

export interface DemotionParts extends Pick<ReplicationParts, 'store' | 'transition' | 'logger'> {
  readonly state: ReplicationState
  readonly times: LinkTimings
}

/** Rejects with a Refusal, and nothing has changed, where `secondaryId` is given and that secondary does not have everything. */
export async function beginDemotion(
  parts: DemotionParts,
  primary: Primary | undefined,
  secondaryId: string,
): Promise<void> {
  if (secondaryId === '') return stepDown(parts, primary)
  const { state, store, transition } = parts
  requireReady(primary, secondaryId)
  try {
    await transition.toSecondary()
    // Also where key shares are given meanwhile, nothing is committed.
    await store.setRole('replica')
    await untilComplete(parts, primary, secondaryId)
    await state.change(() => secondaryOf(parts))
  } catch (error) {
    await serveAgain(parts)
    throw error
  }
  primary?.giveUp()
}

async function stepDown(parts: DemotionParts, primary: Primary | undefined): Promise<void> {
  const { state, transition } = parts
  await state.change(() => secondaryOf(parts))
  try {
    await transition.toSecondary()
  } catch (error) {
    await state.change(() => ({ mode: 'primary', needsToken: false }))
    throw error
  }
  await primary?.drain()
}

function secondaryOf({ store }: DemotionParts) {
  return { mode: 'secondary', needsToken: true, upstream: undefined, provenEpoch: store.epoch } as const
}

/** Throws a Refusal. */
function requireReady(primary: Primary | undefined, id: string): void {
  const follower = primary?.followers.get(id)
  if (follower?.isWhole && follower.isAuthenticated) return
  const incomplete = follower?.isWhole ? 'it is sealed' : 'its initial sync is not complete'
  const why = follower ? incomplete : 'it is not connected'
  throw new Refusal('conflict', `the secondary "${id}" cannot take over: ${why}; nothing has changed`)
}

/** Rejects with a Refusal where the secondary does not prove within `handoverMs` that it has the whole log. */
async function untilComplete({ store, times }: DemotionParts, primary: Primary | undefined, id: string): Promise<void> {
  const { sequence } = store.position()
  const proven = () => primary?.followers.get(id)?.proven ?? 0
  const untilMs = performance.now() + times.handoverMs
  while (proven() < sequence) {
    if (performance.now() > untilMs) {
      const behind = `the secondary "${id}" lacks ${sequence - proven()} commits after ${times.handoverMs / 1000} s`
      throw new Refusal('unavailable', `${behind}: this cluster is the primary still and takes writes again`)
    }
    await sleep(LOOK_MS)
  }
}

async function serveAgain({ logger, state, store, transition }: DemotionParts): Promise<void> {
  try {
    if (!state.now.deposed && store.role === 'replica') await store.setRole('own')
    await transition.toPrimary()
  } catch (error) {
    logger.error('the demotion was refused, and the core could not be opened again: unseal this server', {
      error: messageOf(error),
    })
  }
}
