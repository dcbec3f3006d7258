/** Waits until a secondary follows its primary, and shows how far its sync is. */
import type { Answer } from '../../../output/answer.ts'
import { sleep } from '../../../../platform/clock.ts'
import { messageOf } from '../../../../platform/errors.ts'
import { CommandError, type CommandIo } from '../../../framework/command-shape.ts'
import type { CoreAccess } from '../../../core/core-access.ts'
import { shownName } from '../../../framework/shown.ts'
import { drStatus, otherSide } from './dr-access.ts'

const POLL_MS = 200
/** Between two lines about a sync that goes on. */
const PROGRESS_MS = 2000
/** A secondary that reports the same trouble for so long is not waited for. */
const STALL_MS = 60_000

interface SyncProgress {
  readonly isFollowing: boolean
  readonly shown: string
  /** What keeps it from following; empty while nothing does. */
  readonly trouble: string
  readonly primary: string
}

/**
 * Resolves with the address of the primary once the status of the secondary says that its copy is whole and that it follows.
 * Throws CommandError when it reports the same trouble for `STALL_MS`: the secondary itself goes on trying.
 */
export async function untilFollowing(core: CoreAccess, io: CommandIo): Promise<string> {
  let before = ''
  let printedMs = Number.NEGATIVE_INFINITY
  let changedMs = performance.now()
  for (;;) {
    const { isFollowing, primary, shown, trouble } = await progressOf(core)
    if (isFollowing) return primary
    const nowMs = performance.now()
    if (shown !== before) changedMs = nowMs
    before = shown
    if (trouble !== '' && nowMs - changedMs > STALL_MS) {
      throw new CommandError(
        `${core.target.url.origin} does not follow its primary: ${trouble}; it goes on trying, "outpost operator dr status" shows whether it succeeds`,
      )
    }
    if (shown !== '' && changedMs >= printedMs && nowMs - printedMs > PROGRESS_MS) {
      printedMs = nowMs
      io.err(`   ${shown}\n`)
    }
    await sleep(POLL_MS)
  }
}

async function progressOf(core: CoreAccess): Promise<SyncProgress> {
  try {
    const { fields } = await drStatus(core)
    const [primary] = otherSide(fields)
    const isFollowing = fields.text('mode') === 'secondary' && fields.text('state') === 'stream-wals'
    const trouble = shownName(fields.text('trouble'))
    return { isFollowing, shown: shownOf(fields, trouble), trouble, primary: primary?.text('api_address') ?? '' }
  } catch (error) {
    const trouble = messageOf(error)
    return { isFollowing: false, shown: trouble, trouble, primary: '' }
  }
}

function shownOf(fields: Answer, trouble: string): string {
  if (trouble !== '') return trouble
  const state = fields.text('state')
  const progress = fields.under('merkle_sync_progress')
  if (state === 'merkle-sync') {
    return `copied ${progress.number('sync_progress')} of ${progress.number('sync_total_keys')} entries`
  }
  if (state === 'merkle-diff') return 'compares its entries with those of the primary'
  return state === 'stream-wals' ? 'receives what was committed since the copy began' : ''
}
