/** The time at the beginning of a line, in the forms that logs have. */

const START = /^(?:[[("]|time="?|ts="?|timestamp="?|\{"(?:time|ts|timestamp|@timestamp)":\s*"?)?/
const ISO = /^(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?/
const SYSLOG = /^(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)/
const KLOG = /^[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?/
const EPOCH = /^(\d{10})(\d{3}|\d{6}|\d{9})?(?:\.(\d{1,9}))?(?=[\s,}\]"]|$)/
const MONTHS = 'JanFebMarAprMayJunJulAugSepOctNovDec'
/** The time is at the beginning. */
const LOOKED_AT_CHARS = 80

/** Milliseconds since the epoch; undefined if the line has no time. A time without a zone is local. */
export function timeOfLine(line: string, now: Date = new Date()): number | undefined {
  const head = line.slice(0, LOOKED_AT_CHARS)
  const text = head.slice(START.exec(head)?.[0].length ?? 0)
  const iso = ISO.exec(text)
  if (iso) return fromIso(iso)
  const epoch = EPOCH.exec(text)
  if (epoch) return Number(epoch[1]) * 1000 + Number((epoch[2] ?? epoch[3] ?? '0').padEnd(3, '0').slice(0, 3))
  const klog = KLOG.exec(text)
  if (klog) return thisYear(now, Number(klog[1]) - 1, klog.slice(2, 6).map(Number), klog[6])
  const syslog = SYSLOG.exec(text)
  if (syslog) return thisYear(now, MONTHS.indexOf(syslog[1] ?? '') / 3, syslog.slice(2, 6).map(Number), undefined)
  return undefined
}

function fromIso([, year, month, day, hour, minute, second, fraction = '0', zone]: RegExpExecArray):
  | number
  | undefined {
  const ms = Number(fraction.padEnd(3, '0').slice(0, 3))
  const local = `${year}-${month}-${day}T${hour}:${minute}:${second}.${String(ms).padStart(3, '0')}`
  const at = Date.parse(
    zone === undefined ? local : local + (zone === 'Z' ? zone : zone.replace(/^(...)(\d)/, '$1:$2')),
  )
  return Number.isFinite(at) ? at : undefined
}

/** A time without a year: of this year, or of the last if it would be in the future. */
function thisYear(now: Date, month: number, parts: readonly number[], fraction: string | undefined): number {
  const [day = 1, hour = 0, minute = 0, second = 0] = parts
  const ms = Number((fraction ?? '0').padEnd(3, '0').slice(0, 3))
  const at = new Date(now.getFullYear(), month, day, hour, minute, second, ms)
  if (at.getTime() > now.getTime() + 86_400_000) at.setFullYear(at.getFullYear() - 1)
  return at.getTime()
}
