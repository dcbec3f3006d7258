/** Times, durations and sizes as people read them. */
import { signal } from '@preact/signals'
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
const STEPS: readonly (readonly [Intl.RelativeTimeFormatUnit, number])[] = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1000],
]
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' })
const CLOCK_MS = 10_000
/** Of a `Date`. */
const TIME_MAX_MS = 8.64e15

/** Renders all relative times of the page again when it changes. */
const renderedAtMs = signal(Date.now())
setInterval(() => (renderedAtMs.value = Date.now()), CLOCK_MS)

/** The time of the signal is too old for what has just happened. */
function currentMs(): number {
  return Math.max(renderedAtMs.value, Date.now())
}

export function formatBytes(bytes: number): string {
  const step = !(bytes >= 1) ? 0 : Math.min(Math.floor(Math.log2(bytes) / 10), UNITS.length - 1)
  const value = bytes / 1024 ** step
  return `${value >= 100 || step === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[step]}`
}

/** Such as "5 min. ago". */
export function formatRelative(atMs: number, fromMs = currentMs()): string {
  const differenceMs = atMs - fromMs
  const [unit, unitMs] = STEPS.find(([, each]) => Math.abs(differenceMs) >= each) ?? ['second', 1000]
  return relative.format(Math.round(differenceMs / unitMs), unit)
}

/** Such as "2h 5m". */
export function formatSeconds(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)}s`
  const [days, hours, minutes] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
  ]
  const parts = [days > 0 && `${days}d`, hours > 0 && `${hours}h`, minutes > 0 && days === 0 && `${minutes}m`]
  return parts.filter(Boolean).join(' ') || '0s'
}

function two(value: number): string {
  return String(value).padStart(2, '0')
}

/** Local time, as in `2026-11-28 14:05:06`. */
export function formatExact(atMs: number): string {
  const at = new Date(atMs)
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
}

/** Whether the times of the page are exact instead of relative. */
export const areTimesExact = signal(false)

export function toggleTimes(): void {
  areTimesExact.value = !areTimesExact.value
}

/** True in the rows of a long table, where a stop of Tab in each row would be too many: the key of the page shows the times. */
export const InRows = createContext(false)

interface TimeProps {
  /** Milliseconds since the epoch, or an RFC 3339 text. */
  readonly at: number | string
  /** What it is relative to. Default: now. */
  readonly fromMs?: number
}

/** A relative time. A click or Enter shows the exact time instead, of all times of the page. */
export function Time({ at, fromMs }: TimeProps) {
  const isInRow = useContext(InRows)
  const atMs = typeof at === 'number' ? at : Date.parse(at)
  if (!Number.isFinite(atMs) || atMs <= 0 || atMs > TIME_MAX_MS) return <span class="muted">never</span>
  const texts = [formatRelative(atMs, fromMs), formatExact(atMs)]
  const [text, title] = areTimesExact.value ? texts.toReversed() : texts
  return (
    <time
      dateTime={new Date(atMs).toISOString()}
      title={title}
      role="button"
      tabIndex={isInRow ? -1 : 0}
      onClick={onTimeClick}
      onKeyDown={onTimeKey}
    >
      {text}
    </time>
  )
}

/** Not after a time was selected to be copied. */
function onTimeClick(): void {
  if (window.getSelection()?.isCollapsed !== false) toggleTimes()
}

function onTimeKey(event: KeyboardEvent): void {
  if (event.key !== 'Enter' && event.key !== ' ') return
  event.preventDefault()
  toggleTimes()
}

const BADGE_KINDS: Readonly<Record<string, string>> = {
  ready: 'good',
  running: 'good',
  active: 'good',
  unsealed: 'good',
  alive: 'good',
  complete: 'neutral',
  pending: 'neutral',
  left: 'neutral',
  down: 'bad',
  failed: 'bad',
  lost: 'bad',
  unknown: 'bad',
  sealed: 'bad',
  'not ready': 'bad',
  'not initialized': 'bad',
}

interface BadgeProps {
  readonly state: string
  /** The state may be over already. */
  readonly isDoubtful?: boolean
}

/** A state as a word with a colour. */
export function Badge({ isDoubtful, state }: BadgeProps) {
  return <span class={`badge badge-${isDoubtful ? 'warning' : (BADGE_KINDS[state] ?? 'neutral')}`}>{state}</span>
}
