/** The options that `outpost logs`, `outpost job logs` and `outpost fs tail` share, and the query for where the output starts. */
import type { Query } from '../client/http-client.ts'
import { flag, integer } from '../framework/options.ts'

const LINES_DEFAULT = 10
/** Assumed length of a line for a server that cannot count lines, as with `nomad`. */
const LINE_BYTES_GUESS = 120

export const tailOptions = {
  n: integer({
    placeholder: 'N',
    help: 'Start N lines before the end',
    fallback: undefined,
    shownDefault: `${LINES_DEFAULT} with -tail`,
    min: 0,
    max: 1_000_000_000,
  }),
  c: integer({
    placeholder: 'BYTES',
    help: 'Start this number of bytes before the end',
    fallback: undefined,
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
  }),
  'no-resume': flag('Exit when the connection breaks instead of resuming'),
}

/** The last lines; a server that does not count lines uses the byte offset. */
export function tailQuery({ n, c }: { readonly n: number | undefined; readonly c: number | undefined }): Query {
  if (c !== undefined) return { origin: 'end', offset: c }
  const lines = n ?? LINES_DEFAULT
  return { origin: 'end', offset: lines * LINE_BYTES_GUESS, tail_lines: lines }
}
