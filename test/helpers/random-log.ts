/** Random logs, well-formed and malformed, for tests against models. */
import type { NaiveFile } from './log-model.ts'
import type { Random } from './frames.ts'

/** Timestamps of one moment in each supported form. */
type Form = (timeMs: number) => string

const iso = (timeMs: number) => new Date(timeMs).toISOString()
const two = (value: number) => String(value).padStart(2, '0')

/** The parts of the local time of a host. */
function local(timeMs: number) {
  const date = new Date(timeMs)
  return {
    date: `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`,
    day: date.getDate(),
    month: date.getMonth(),
    clock: `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`,
    fraction: String(date.getMilliseconds()).padStart(3, '0'),
  }
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

export const FORMS: readonly [Form, ...Form[]] = [
  iso,
  (timeMs) => `[${iso(timeMs).replace('T', ' ').slice(0, 19)} +0000]`,
  (timeMs) => `${iso(timeMs + 19_800_000).replace('Z', '123456')}+05:30 INFO`,
  (timeMs) => `${iso(timeMs - 3_600_000).slice(0, 19)}-0100`,
  (timeMs) => `${iso(timeMs).replace('T', ' ').replace('Z', '')} UTC [12]`,
  (timeMs) => `{"time":"${iso(timeMs)}","msg":"x"}`,
  (timeMs) => `{"@timestamp": "${iso(timeMs)}"}`,
  (timeMs) => `{"ts":${(timeMs / 1000).toFixed(6)},"msg":"x"}`,
  (timeMs) => `time=${iso(timeMs)} level=INFO`,
  (timeMs) => `ts="${iso(timeMs)}"`,
  (timeMs) => `"${iso(timeMs)}",1,2`,
  (timeMs) => `${local(timeMs).date} ${local(timeMs).clock},${local(timeMs).fraction} - INFO`,
  (timeMs) => `${local(timeMs).date.replaceAll('-', '/')} ${local(timeMs).clock} [error]`,
  (timeMs) => {
    const { date, clock, fraction } = local(timeMs)
    return `I${date.slice(5, 7)}${date.slice(8)} ${clock}.${fraction}456 12 x.go:3]`
  },
  (timeMs) => {
    const { month, day, clock } = local(timeMs)
    return `${MONTHS[month]} ${String(day).padStart(2)} ${clock} host x:`
  },
  (timeMs) => `${Math.floor(timeMs / 1000)} x`,
  (timeMs) => `${(timeMs / 1000).toFixed(3)}: x`,
  (timeMs) => `${Math.floor(timeMs)}`,
  (timeMs) => `[${Math.floor(timeMs)}000000]`,
]

/** Texts that resemble timestamps, or timestamps that are not at the start of a line. */
const PRETENDERS = [
  '2026-13-01T00:00:00Z',
  '2026-02-30 10:00:00',
  '2026-11-21T10:00:0',
  '2026-11/21 10:00:00',
  '2026-11-21T25:00:00Z',
  '2026-11-21T10:00:001Z',
  '1700000000-abc',
  '17000000',
  '99999999999',
  'I1321 10:00:00.123456',
  'Nov 31 10:00:00 host',
  'Nov 2',
  '{"level":"info","time":"2026-11-21T10:00:00Z"}',
  'timer=3',
  't',
  '[',
  '{"',
  ' 2026-11-21T10:00:00Z',
] as const

export interface LogShape {
  /** Timestamps never decrease, so that bisection is correct. */
  readonly steady: boolean
  readonly startMs: number
  /** Sometimes a line or a file is larger than one read. */
  readonly large: boolean
}

/** A log of 1 to 5 files; the last modification is about the last timestamp. */
export function randomLog(random: Random, shape: LogShape): { files: NaiveFile[]; endMs: number } {
  const form = random.pick(FORMS)
  const stampedPart = random.pick([0, 0.3, 0.9, 1])
  const newline = random.pick(['\n', '\n', '\r\n'])
  let timeMs = shape.startMs
  const line = () => {
    const backMs = shape.steady || random.chance(0.9) ? 0 : random.between(1, 100_000)
    timeMs += random.pick([0, 1, random.between(0, 2000), random.between(0, 30_000)]) - backMs
    const filler = 'x'.repeat(
      shape.large && random.chance(0.02) ? random.between(50_000, 150_000) : random.between(0, 30),
    )
    if (random.chance(stampedPart)) return `${form(timeMs)} ${filler}`
    if (!shape.steady && random.chance(0.2)) return random.pick(PRETENDERS)
    return random.pick([filler, `\tat ${filler}`, '', '\0\0', `x ${form(timeMs)}`])
  }
  const files: NaiveFile[] = []
  let index = random.pick([0, 0, 3])
  for (let count = random.between(1, 5); count > 0; count--, index += random.pick([1, 1, 2])) {
    let text = ''
    const lines = random.pick([0, 1, 3, 20, ...(shape.large ? [400] : [])])
    for (let at = 0; at < lines; at++) text += line() + newline
    // A writer that splits files at their limit, within a line or its timestamp. A timestamp without its zone is another
    // time.
    if (random.chance(0.4)) text += line().slice(0, shape.steady ? undefined : random.between(1, 60))
    files.push({ index, text, modifiedMs: timeMs + random.pick([0, 0, 5, -8, 3000]) })
  }
  return { files, endMs: timeMs }
}
