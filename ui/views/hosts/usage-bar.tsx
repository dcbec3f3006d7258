const WARNING_PERCENT = 80
const FULL_PERCENT = 90

function levelOf(percent: number, isLimit: boolean): string {
  if (!isLimit) return 'usage'
  if (percent >= FULL_PERCENT) return 'usage usage-full'
  return percent >= WARNING_PERCENT ? 'usage usage-high' : 'usage'
}

interface UsageBarProps {
  /** Undefined: not measured. */
  readonly percent: number | undefined
  /** Why it is not measured, or what it is of. */
  readonly title?: string
  /** Whether a high value is a problem. Default: true. */
  readonly isLimit?: boolean
}

/** A share of 100 % as a number with a bar. */
export function UsageBar({ isLimit = true, percent, title }: UsageBarProps) {
  if (percent === undefined) {
    return (
      <span class="muted" title={title}>
        –
      </span>
    )
  }
  return (
    <span class={levelOf(percent, isLimit)} title={title}>
      <span class="usage-track" aria-hidden="true">
        <span class="usage-fill" style={{ width: `${Math.min(100, percent)}%` }} />
      </span>
      {Math.round(percent)} %
    </span>
  )
}
