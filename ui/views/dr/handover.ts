/**
 * The state of a demoted primary as a short text, which the user carries to the page of the secondary: the page of a server cannot ask
 * another server. The secondary must have the same entries before its promotion.
 */
import type { DrStatus } from './dr-status.ts'

const ROOT_LENGTH = 16

/** Position and hash of all entries, such as `4711-0f3a5c…`. */
export function handoverText({ merkle_root: root = '', position = 0 }: DrStatus): string {
  return `${position}-${root.slice(0, ROOT_LENGTH)}`
}

/** Why this server must not be promoted yet; undefined if it has the same entries, or no state was given. */
export function handoverProblem(given: string, status: DrStatus): string | undefined {
  const wanted = given.trim()
  if (wanted === '') return undefined
  if (!/^\d+-[0-9a-f]{16}$/.test(wanted)) return 'This is not the state that the page of the demoted primary shows.'
  if (wanted === handoverText(status)) return undefined
  const position = Number(wanted.split('-')[0])
  const own = status.position ?? 0
  if (own < position) return `This server does not have all commits of the old primary: position ${own} of ${position}.`
  return 'The entries of this server differ from those of the old primary. Was it demoted for this secondary?'
}

/** What to do after a promotion. After the first half of a planned switch, the old primary is demoted. */
export function nextStep(isPlanned: boolean): string {
  const old = isPlanned
    ? 'On the page of the old primary, which is demoted, join it'
    : 'When the old primary is back, demote it on its page and join it'
  return `Next: direct the callers to this server. ${old} with an activation token of this server. Other secondaries join with new tokens.`
}
