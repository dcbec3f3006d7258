/** What the commands about jobs have in common. */
import type { Answer } from '../../output/answer.ts'
import { text } from '../../framework/options.ts'
import { shownName } from '../../framework/shown.ts'
import { formatTable } from '../../output/table.ts'

export const namespaceOption = text({
  placeholder: 'NAME',
  help: 'Namespace of the job',
  fallback: undefined,
  shownDefault: 'all that the token may list',
})

export const jobOperand = { shown: 'JOB', min: 1, max: 1, missing: 'which job? give its ID or the beginning of it' }

const STATES = ['Running', 'Starting', 'Failed', 'Complete', 'Lost'] as const

/** How many allocations of a job have which state. */
export function stateCounts(job: Answer): number[] {
  const groups = job.under('JobSummary').under('Summary')
  const names = job.under('JobSummary').names('Summary')
  return STATES.map((state) => names.reduce((sum, name) => sum + groups.under(name).number(state), 0))
}

export const STATE_COLUMNS: readonly string[] = STATES

/** The same by task group. */
export function groupsTable(job: Answer): string {
  const groups = job.under('JobSummary').under('Summary')
  const names = job.under('JobSummary').names('Summary').sort()
  const rows = names.map((name) => [
    shownName(name),
    ...STATES.map((state) => String(groups.under(name).number(state))),
  ])
  return formatTable(['Task Group', ...STATES], rows, ['left', ...STATES.map(() => 'right' as const)])
}
