/** Columns and key-value blocks, as the field's tools print them. */

/**
 * Columns two spaces apart, the last one ragged; ends with a newline. They are left-aligned unless `sides` says right.
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

/** `Key  = value` lines with the equals signs below each other; ends with a newline. */
export function formatPairs(pairs: readonly (readonly [string, string])[]): string {
  const width = Math.max(...pairs.map(([key]) => key.length))
  return pairs.map(([key, value]) => `${key.padEnd(width)} = ${value}\n`).join('')
}
