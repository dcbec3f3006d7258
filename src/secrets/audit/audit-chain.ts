/**
 * The chain through the lines of a device. Each line ends with `"chain":{"sequence":N,"previous":"<SHA-256 of the line
 * before>"}}`, so a line that was changed, removed or added later no longer fits the ones around it
 * (`outpost audit verify`). The numbers go on over rotations and restarts.
 *
 * Somebody who may write the file can make all lines after a change anew. The server keeps the end of the chain in the
 * barrier and tells it (`sys/audit`): such a file ends with another hash.
 */
import { hash } from 'node:crypto'

/** The last line that was written: its number and its SHA-256 in hexadecimal. */
export interface ChainHead {
  readonly sequence: number
  readonly hash: string
}

/** Before the first line of a device. */
export const CHAIN_START: ChainHead = { sequence: 0, hash: '0'.repeat(64) }

/** What a line says of its place. */
export interface Link {
  readonly sequence: number
  readonly previous: string
}

const LINK = /,"chain":\{"sequence":(\d{1,15}),"previous":"([0-9a-f]{64})"\}\}$/
/** The end of a line that tells its place. */
export const LINK_LENGTH_MAX = 160

/** The text of a line, without its end of line, behind `head`; `json` is a JSON object with at least one member. */
export function chained(json: string, { sequence, hash: previous }: ChainHead): string {
  return `${json.slice(0, -1)},"chain":{"sequence":${sequence + 1},"previous":"${previous}"}}`
}

/** Lines behind `head`, each with `prefix` before it and its end of line, and the head that the last of them is. */
export function chainedLines(
  lines: readonly string[],
  prefix: string,
  head: ChainHead,
): { readonly texts: readonly string[]; readonly last: ChainHead } {
  let last = head
  const texts = lines.map((json) => {
    const line = prefix + chained(json, last)
    last = { sequence: last.sequence + 1, hash: hash('sha256', line) }
    return `${line}\n`
  })
  return { texts, last }
}

/** The head that a line is; `line` is without its end of line. Undefined for what no device has written. */
export function headOf(line: string): ChainHead | undefined {
  const link = linkOf(line.slice(-LINK_LENGTH_MAX))
  return link && { sequence: link.sequence, hash: hash('sha256', line) }
}

/** The place that the end of a line tells. Undefined for what no device has written. */
export function linkOf(end: string): Link | undefined {
  const [, sequence, previous] = LINK.exec(end) ?? []
  return sequence === undefined || previous === undefined ? undefined : { sequence: Number(sequence), previous }
}
