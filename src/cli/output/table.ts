/** Tables, key-value blocks, sizes and times. */

/**
 * Columns two spaces apart; ends with a newline. Columns are left-aligned unless `sides` contains `right`.
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  sides: readonly ('left' | 'right')[] = [],
): string {
  const all = [header, ...rows]
  const widths = header.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)))
  const aligned = (cell: string, column: number) =>
    sides[column] === 'right' ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0)
  const lines = all.map((row) => row.map(aligned).join('  '))
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`
}

/** `Key  = value` lines with aligned equals signs; ends with a newline. */
export function formatPairs(pairs: readonly (readonly [string, string])[]): string {
  const width = Math.max(...pairs.map(([key]) => key.length))
  return pairs.map(([key, value]) => `${key.padEnd(width)} = ${value}\n`).join('')
}

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

/** RFC 3339 in UTC without fractions: `2026-11-21T10:00:00Z`. */
export function isoSeconds(atMs: number): string {
  return `${new Date(atMs).toISOString().slice(0, 19)}Z`
}

/** `3d4h ago`. */
export function humanAge(fromMs: number, nowMs: number): string {
  return `${humanSeconds((nowMs - fromMs) / 1000)} ago`
}
