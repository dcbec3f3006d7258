/** Bytes and times as people read them. */

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB']

/** `1.5 MiB`. */
export function humanBytes(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024
    unit++
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1
  return `${value.toFixed(digits)} ${BYTE_UNITS[unit]}`
}

const TIME_UNITS: readonly (readonly [string, number])[] = [
  ['d', 86_400],
  ['h', 3600],
  ['m', 60],
  ['s', 1],
]

/** In the two largest units: `3d4h`, `1h0m`, `12s`. */
export function humanSeconds(seconds: number): string {
  let rest = Math.max(Math.floor(seconds), 0)
  const parts: string[] = []
  for (const [unit, size] of TIME_UNITS) {
    const count = Math.floor(rest / size)
    rest -= count * size
    if (count > 0 || parts.length > 0 || unit === 's') parts.push(`${count}${unit}`)
  }
  return parts.slice(0, 2).join('')
}

/** How long ago: `3d4h ago`. */
export function humanAge(fromMs: number, nowMs: number): string {
  return `${humanSeconds((nowMs - fromMs) / 1000)} ago`
}
