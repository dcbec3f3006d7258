/**
 * Where our answers to single requests differ from the recorded ones. Each `because` is a heading of
 * docs/compatibility.md, which gives the reason. The order matters: an entry sees what those before it have made.
 */
import { comparableRecorded } from './comparable.ts'
import { contentDifferences } from './differences-content.ts'
import type { Difference } from './judge.ts'
import type { RecordedRow } from './recording.ts'
import { metadataDifferences } from './differences-metadata.ts'
import {
  all,
  askedAllocation,
  askedNode,
  bodyOf,
  contentType,
  isError,
  listed,
  NOSNIFF,
  only,
  ownPaths,
  PLAIN,
  refusal,
  status,
  withLines,
  without,
} from './turns.ts'

const unknownPaths: Difference[] = [
  {
    because: 'Unknown paths',
    rows: /^unary\/route\/unknown-path$/,
    turn: (answer, row) => ({
      ...answer,
      status: 404,
      headers: ['content-type: application/json', NOSNIFF],
      body: JSON.stringify({ errors: [`no handler for route "${row.path.replace(/\?.*/, '')}"`] }),
    }),
  },
  {
    because: 'Unknown paths',
    rows: /^unary\/(route\/(client-unknown|fs-(unknown|no-slash|bare)|alloc-(bare|no-verb|bad-verb|extra-part|checks))|allocstats\/empty)$/,
    turn: (answer, row) => ({
      ...answer,
      status: 404,
      headers: [PLAIN, NOSNIFF],
      body: `no handler for route "${row.path}"`,
    }),
  },
]

const malformed = (kind: string, id: string): string =>
  `${kind === 'allocation' ? 'alloc' : kind} lookup failed: "${id}" is not a full ${kind} ID, use all 36 characters of the UUID`

const names: Difference[] = [
  {
    because: 'Malformed IDs',
    rows: /^unary\/(.*\/(short|nonhex)(-alloc)?( completed)?|route\/fs-trailing-slash)$/,
    turn: (answer, row) => refusal(400, malformed('allocation', askedAllocation(row)))(answer, row),
  },
  {
    because: 'Malformed IDs',
    rows: /^unary\/(stats|metadata|gc)\/(short|bad)-node$/,
    turn: (answer, row) => refusal(400, malformed('node', askedNode(row)))(answer, row),
  },
  {
    because: 'Other nodes',
    rows: /^unary\/(stats|metadata|gc)\/upper-node$/,
    turn: bodyOf((_, row) => `Unknown node ${askedNode(row)}`),
  },
  {
    because: 'Other nodes',
    rows: /^unary\/(metadata|gc)\/.*unknown$/,
    turn: only(({ body }) => body.includes('Unknown node'), status(404)),
  },
  {
    because: 'Other nodes',
    rows: /^unary\/(metadata|gc)\/unknown-node$/,
    turn: status(404),
  },
  {
    because: 'Other nodes',
    rows: /^unary\/monitor\/unknown-node$/,
    turn: (answer, row) => refusal(404, `Unknown node "${askedNode(row)}"`)(answer, row),
  },
  {
    because: 'No “rpc error” in front of messages',
    rows: /./,
    turn: only(
      isError,
      bodyOf((text) => text.replace(/^rpc error: (?=Unknown)/, '')),
    ),
  },
]

const requests: Difference[] = [
  {
    because: 'Ignored parameters',
    rows: /^unary\/route\/(ls-bad-wait|stats-bad-stale|stats-bad-index)$/,
    // The recorded answer is the complaint with the normal answer behind it.
    turn: (_, row) => {
      const { text = '', headers = [] } = row.answer ?? {}
      const normal = { status: 200, headers, text: text.slice(text.search(/[[{]/)) }
      return contentType('application/json')(comparableRecorded({ ...row, answer: normal }), row)
    },
  },
  {
    because: 'Listings and file information are text/plain',
    rows: /^unary\/(ls|stat|route\/ls)[-/]/,
    turn: only(
      ({ headers }) => headers.includes('content-type: application/json'),
      contentType('text/plain; charset=utf-8'),
    ),
  },
  {
    because: 'The manifest is listed',
    rows: /^unary\/(ls|route\/ls)/,
    turn: only(({ body }) => body.includes('"Name":"..foo-in"'), listed('alloc.json')),
  },
  {
    because: 'Garbage collection of a running allocation',
    rows: /^unary\/allocgc\/(running|POST)$/,
    turn: status(409),
  },
  {
    because: 'Pages of other origins',
    rows: /^unary\/route\/ls-(OPTIONS|GET)-cors$/,
    turn: without('access-control-'),
  },
  {
    because: 'Vary',
    rows: /^unary\/(gc|support|monitor)\//,
    turn: withLines('vary: Origin'),
  },
]

const everywhere: Difference[] = [
  { because: 'Paths in error texts', rows: /./, turn: only(isError, ownPaths) },
  {
    because: 'Compression',
    rows: /./,
    turn: only(
      ({ headers }, row) => headers.includes('content-encoding: gzip') && row.name !== 'unary/ls/ok-gzip',
      without('content-encoding: '),
    ),
  },
  {
    because: 'Compression',
    rows: /\/(cat\/empty|gc\/gzip|stopped-gzip)/,
    turn: all(
      without('content-length: ', 'content-encoding: '),
      only(({ body }) => body === '', withLines('content-length: 0')),
    ),
  },
  { because: 'nosniff', rows: /./, turn: only(isError, withLines(NOSNIFF)) },
]

export const unaryDifferences: readonly Difference[] = [
  ...unknownPaths,
  ...names,
  ...requests,
  ...contentDifferences,
  ...metadataDifferences,
  ...everywhere,
  {
    because: 'offset and limit must be given',
    rows: /^unary\/(stream|readat)\/[^ ]*$/,
    turn: only(
      ({ body }, row) => missing(row.path) !== undefined && !body.includes('follow field'),
      (answer, row) =>
        refusal(400, `error parsing ${missing(row.path)}: strconv.ParseInt: parsing "": invalid syntax`)(answer, row),
    ),
  },
]

/** The parameter that we require and this request lacks; our own texts for the others come first. */
export function missing(path: string): 'offset' | 'limit' | undefined {
  if (!/\/fs\/(stream|readat)\//.test(path)) return undefined
  if (!/[?&]offset=/.test(path)) return 'offset'
  return path.includes('/fs/readat/') && !/[?&]limit=/.test(path) && !/offset=(abc|1\.5|9{10,})/.test(path)
    ? 'limit'
    : undefined
}

/** The row with the parameters that we require, where it lacks them. */
export function completed(row: RecordedRow): RecordedRow {
  const first = missing(row.path)
  if (first === undefined) return row
  const join = row.path.includes('?') ? '&' : '?'
  const limit = row.path.includes('/fs/readat/') && !/[?&]limit=/.test(row.path)
  const added = [...(first === 'offset' ? ['offset=0'] : []), ...(limit ? ['limit=-1'] : [])]
  return { ...row, name: `${row.name} completed`, path: `${row.path}${join}${added.join('&')}` }
}
