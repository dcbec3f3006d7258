/**
 * Parses timestamps at the beginning of log lines, on bytes.
 *
 * After an optional `[`, `"`, JSON opening (`{"time":"`, also `ts`, `timestamp`, `@timestamp`) or `time=` (`ts=`,
 * `timestamp=`):
 *
 * - ISO 8601 and RFC 3339: `2026-11-21T10:00:00.123Z`, with a space for the `T`, `/` for the `-`, `,` for the `.`; zone `Z`,
 *   `UTC`, `GMT`, `+01:00`, `+0100`, `+01`, also after a space. Without a zone: the host's local time
 * - klog: `I1121 10:00:00.123456`, and syslog: `Nov 21 10:00:00`: local time of the year nearest to a reference, the
 *   modification time of the file
 * - seconds, milliseconds, microseconds or nanoseconds since the epoch between the years 2000 and 2100
 */

/** Bytes of a line that are searched for a timestamp. */
export const STAMP_BYTES_MAX = 96

const [SPACE, QUOTE, COMMA, DOT, COLON, EQUALS, BRACKET, BRACE] = [32, 34, 44, 46, 58, 61, 91, 123]
const [ZERO, PLUS, MINUS, SLASH, LETTER_T, LETTER_Z] = [48, 43, 45, 47, 84, 90]
/** The bit of lower case letters. */
const LOWER = 32
const KEYS = ['time', 'ts', 'timestamp', '@timestamp'].map((key) => Buffer.from(key))
const UTC_NAMES = ['UTC', 'GMT'].map((name) => Buffer.from(name))
/** Severities of klog. */
const KLOG_LETTERS = new Set(Buffer.from('IWEF'))
const MONTHS = new Map(
  ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'].map((name, index) => {
    const bytes = Buffer.from(name)
    return [threeBytes(bytes, 0), index + 1]
  }),
)
const MONTH_DAYS = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
const SECOND_MS = 1000
const MINUTE_MS = 60_000
const DAY_MS = 86_400_000
const YEAR_2000_S = 946_684_800
const YEAR_2100_S = 4_102_444_800
const FRACTION_DIGITS_MAX = 9

export class TimestampParser {
  readonly #referenceMs: number
  /** Cache of the last local minute: the lookup of the zone's offset is slow, and lines of a log have similar times. */
  #localKey = -1
  #localMs = 0
  #dayKey = -1
  #dayYear = 0

  /** Timestamps without a year get the year nearest to `referenceMs`. */
  constructor(referenceMs: number) {
    this.#referenceMs = referenceMs
  }

  /** The timestamp at the beginning of the line in `[start, end)`: milliseconds since the epoch, NaN if there is none. */
  at(bytes: Buffer, start: number, end: number): number {
    const at = behindOpening(bytes, start, end)
    const first = bytes[at] ?? 0
    if (at >= end) return Number.NaN
    if (isDigit(first)) {
      const separator = bytes[at + 4]
      return separator === MINUS || separator === SLASH ? this.#iso(bytes, at, end) : epochTime(bytes, at, end)
    }
    return KLOG_LETTERS.has(first) && isDigit(bytes[at + 1] ?? 0)
      ? this.#klog(bytes, at, end)
      : this.#syslog(bytes, at, end)
  }

  #iso(bytes: Buffer, at: number, end: number): number {
    if (at + 19 > end || bytes[at + 7] !== bytes[at + 4]) return Number.NaN
    const between = bytes[at + 10] ?? 0
    if (between !== SPACE && (between & ~LOWER) !== LETTER_T) return Number.NaN
    const century = twoDigits(bytes, at)
    const year = century * 100 + twoDigits(bytes, at + 2)
    const month = twoDigits(bytes, at + 5)
    const day = twoDigits(bytes, at + 8)
    const minutes = minutesOf(bytes, at + 11)
    if (!(year >= 0) || !isDate(year, month, day) || Number.isNaN(minutes)) return Number.NaN
    const secondsMs = secondsOf(bytes, at + 16, end)
    const zoneAt = fractionEnd(bytes, at + 19, end)
    const zone = zoneMinutes(bytes, zoneAt, end)
    if (Number.isNaN(zone)) return this.#local(year, month, day, minutes) + secondsMs
    return daysOf(year, month, day) * DAY_MS + (minutes - zone) * MINUTE_MS + secondsMs
  }

  /** `I1121 10:00:00.123456` */
  #klog(bytes: Buffer, at: number, end: number): number {
    if (at + 14 > end || bytes[at + 5] !== SPACE) return Number.NaN
    return this.#withoutYear(twoDigits(bytes, at + 1), twoDigits(bytes, at + 3), bytes, at + 6, end)
  }

  /** `Nov 21 10:00:00`, `Nov  1 10:00:00` */
  #syslog(bytes: Buffer, at: number, end: number): number {
    if (at + 15 > end || bytes[at + 3] !== SPACE || bytes[at + 6] !== SPACE) return Number.NaN
    const month = MONTHS.get(threeBytes(bytes, at))
    if (month === undefined) return Number.NaN
    const ones = bytes[at + 5] ?? 0
    const padded = isDigit(ones) ? ones - 48 : Number.NaN
    const day = bytes[at + 4] === SPACE ? padded : twoDigits(bytes, at + 4)
    return this.#withoutYear(month, day, bytes, at + 7, end)
  }

  #withoutYear(month: number, day: number, bytes: Buffer, at: number, end: number): number {
    const minutes = minutesOf(bytes, at)
    const secondsMs = secondsOf(bytes, at + 5, end)
    // A leap year, so that all days are valid.
    if (!isDate(2000, month, day) || Number.isNaN(minutes) || Number.isNaN(secondsMs)) return Number.NaN
    const year = this.#nearestYear(month, day)
    return this.#local(year, month, day, minutes) + secondsMs
  }

  #local(year: number, month: number, day: number, minutes: number): number {
    const key = daysOf(year, month, day) * 1440 + minutes
    if (key !== this.#localKey) {
      // Date interprets years below 100 as those of the last century; their time zone does not matter.
      this.#localMs = year < 100 ? key * MINUTE_MS : new Date(year, month - 1, day, 0, minutes).getTime()
      this.#localKey = key
    }
    return this.#localMs
  }

  #nearestYear(month: number, day: number): number {
    const key = month * 32 + day
    if (key === this.#dayKey) return this.#dayYear
    const middle = new Date(this.#referenceMs).getFullYear()
    let nearestMs = Number.POSITIVE_INFINITY
    // A leap day may be up to eight years away.
    for (let year = middle - 8; year <= middle + 8; year++) {
      const awayMs = Math.abs(new Date(year, month - 1, day, 12).getTime() - this.#referenceMs)
      if (!isDate(year, month, day) || awayMs >= nearestMs) continue
      nearestMs = awayMs
      this.#dayYear = year
    }
    this.#dayKey = key
    return this.#dayYear
  }
}

/** The position after an optional opening before a timestamp. */
function behindOpening(bytes: Buffer, start: number, end: number): number {
  const first = bytes[start] ?? 0
  if (isDigit(first)) return start
  if (first === BRACKET || first === QUOTE) return start + 1
  if (first === BRACE) {
    const quote = behindSpaces(bytes, start + 1, end)
    const key = bytes[quote] === QUOTE ? behindKey(bytes, quote + 1, end) : start
    if (key === start || key === quote + 1 || bytes[key] !== QUOTE) return start
    const colon = behindSpaces(bytes, key + 1, end)
    if (bytes[colon] !== COLON) return start
    return behindQuote(bytes, behindSpaces(bytes, colon + 1, end))
  }
  if (first !== (LETTER_T | LOWER)) return start
  const key = behindKey(bytes, start, end)
  return bytes[key] === EQUALS ? behindQuote(bytes, key + 1) : start
}

const behindQuote = (bytes: Buffer, at: number) => (bytes[at] === QUOTE ? at + 1 : at)

function behindSpaces(bytes: Buffer, at: number, end: number): number {
  while (at < end && bytes[at] === SPACE) at++
  return at
}

/** The position after a key of a timestamp, or `at` if there is none. */
function behindKey(bytes: Buffer, at: number, end: number): number {
  for (const key of KEYS) {
    const behind = at + key.length
    const next = bytes[behind]
    if (behind < end && (next === QUOTE || next === EQUALS) && startsWith(bytes, at, end, key)) return behind
  }
  return at
}

function startsWith(bytes: Buffer, at: number, end: number, text: Buffer): boolean {
  if (at + text.length > end) return false
  for (let index = 0; index < text.length; index++) if (bytes[at + index] !== text[index]) return false
  return true
}

const isDigit = (byte: number) => byte >= 48 && byte <= 57
const isNameByte = (byte: number) => isDigit(byte) || byte === 95 || ((byte | LOWER) >= 97 && (byte | LOWER) <= 122)

/** NaN if they are not digits. */
function twoDigits(bytes: Buffer, at: number): number {
  const [tens, ones] = [bytes[at] ?? 0, bytes[at + 1] ?? 0]
  return isDigit(tens) && isDigit(ones) ? tens * 10 + ones - 528 : Number.NaN
}

function threeBytes(bytes: Buffer, at: number): number {
  return ((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0)
}

/** `hh:mm` as minutes of the day; NaN if it is not a time. */
function minutesOf(bytes: Buffer, at: number): number {
  const [hours, minutes] = [twoDigits(bytes, at), twoDigits(bytes, at + 3)]
  return bytes[at + 2] === COLON && hours < 24 && minutes < 60 ? hours * 60 + minutes : Number.NaN
}

/** `:ss` and its fraction in milliseconds; NaN if malformed. Leap seconds are valid. */
function secondsOf(bytes: Buffer, at: number, end: number): number {
  const seconds = twoDigits(bytes, at + 1)
  if (bytes[at] !== COLON || !(seconds <= 60)) return Number.NaN
  if (at + 3 < end && isDigit(bytes[at + 3] ?? 0)) return Number.NaN
  return seconds * SECOND_MS + fractionMs(bytes, at + 3, end)
}

/** Milliseconds of a `.123` or `,123`; 0 without one. */
function fractionMs(bytes: Buffer, at: number, end: number): number {
  const digitsEnd = Math.min(fractionEnd(bytes, at, end), at + 1 + FRACTION_DIGITS_MAX)
  return digitsEnd <= at + 1 ? 0 : (numberOf(bytes, at + 1, digitsEnd) * SECOND_MS) / 10 ** (digitsEnd - at - 1)
}

function fractionEnd(bytes: Buffer, at: number, end: number): number {
  const [mark, digit] = [bytes[at], bytes[at + 1] ?? 0]
  if (at + 1 >= end || (mark !== DOT && mark !== COMMA) || !isDigit(digit)) return at
  let behind = at + 2
  while (behind < end && isDigit(bytes[behind] ?? 0)) behind++
  return behind
}

/** Minutes east of Greenwich; NaN without a zone. */
function zoneMinutes(bytes: Buffer, at: number, end: number): number {
  if (at >= end) return Number.NaN
  if (((bytes[at] ?? 0) & ~LOWER) === LETTER_Z) return 0
  const zone = bytes[at] === SPACE ? at + 1 : at
  if (UTC_NAMES.some((name) => startsWith(bytes, zone, end, name))) return 0
  const sign = bytes[zone]
  if ((sign !== PLUS && sign !== MINUS) || zone + 3 > end) return Number.NaN
  const minutesAt = bytes[zone + 3] === COLON ? zone + 4 : zone + 3
  const digitAt = (position: number) => position < end && isDigit(bytes[position] ?? 0)
  const long = digitAt(minutesAt) && digitAt(minutesAt + 1) && !digitAt(minutesAt + 2)
  const hours = twoDigits(bytes, zone + 1)
  const minutes = long ? twoDigits(bytes, minutesAt) : 0
  if (!(hours < 24 && minutes < 60) || (!long && digitAt(zone + 3))) return Number.NaN
  return (sign === MINUS ? -1 : 1) * (hours * 60 + minutes)
}

function isDate(year: number, month: number, day: number): boolean {
  if (!(month >= 1 && month <= 12 && day >= 1 && day <= (MONTH_DAYS[month - 1] ?? 0))) return false
  return month !== 2 || day < 29 || (year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0))
}

/** Days from the epoch to a date of the Gregorian calendar. Years start in March, so that leap days are last. */
function daysOf(year: number, month: number, day: number): number {
  const marchYear = month <= 2 ? year - 1 : year
  const marchMonth = month <= 2 ? month + 9 : month - 3
  const leapDays = Math.floor(marchYear / 4) - Math.floor(marchYear / 100) + Math.floor(marchYear / 400)
  return marchYear * 365 + leapDays + Math.floor((153 * marchMonth + 2) / 5) + day - 719_469
}

/** A leading number that is a plausible time since the epoch. */
function epochTime(bytes: Buffer, at: number, end: number): number {
  if (bytes[at] === ZERO) return Number.NaN
  let behind = at
  while (behind < end && isDigit(bytes[behind] ?? 0)) behind++
  // Seconds of these years have 9 or 10 digits. Each finer unit has three more, which are a fraction of the second.
  const finer = Math.floor((behind - at) / 3) * 3 - 9
  const secondsEnd = behind - finer
  if (finer < 0 || finer > FRACTION_DIGITS_MAX || secondsEnd - at > 10) return Number.NaN
  const seconds = numberOf(bytes, at, secondsEnd)
  if (seconds < YEAR_2000_S || seconds >= YEAR_2100_S) return Number.NaN
  const fractionalEnd = fractionEnd(bytes, behind, end)
  const next = bytes[fractionalEnd] ?? 0
  // A name, an address or a larger number is not a timestamp.
  if (fractionalEnd < end && (isNameByte(next) || next === MINUS || next === DOT)) return Number.NaN
  const scale = 10 ** finer
  const finerMs = (numberOf(bytes, secondsEnd, behind) * SECOND_MS) / scale
  return seconds * SECOND_MS + finerMs + fractionMs(bytes, behind, end) / scale
}

function numberOf(bytes: Buffer, at: number, end: number): number {
  let value = 0
  for (let digit = at; digit < end; digit++) value = value * 10 + (bytes[digit] ?? 0) - 48
  return value
}
