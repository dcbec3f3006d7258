/** Where ls, stat, cat, readat, stream and logs differ in what they find, show and refuse. */
import type { Difference } from './judge.ts'
import {
  all,
  askedPath,
  body,
  bodyOf,
  content,
  contentType,
  facts,
  isError,
  NOSNIFF,
  only,
  refusal,
  status,
  withLines,
  without,
} from './turns.ts'

const READERS = '(cat|readat|stream)'

const defaults: Difference[] = [
  {
    because: 'path is the root by default',
    rows: /^unary\/stat\/(no-params|no-path|empty-path)$/,
    turn: all(status(200), contentType('text/plain; charset=utf-8'), facts('drwxr-xr-x', 'application/octet-stream')),
  },
  {
    because: 'path is the root by default',
    rows: new RegExp(`^unary/${READERS}/(no-params|no-path)( completed)?$`),
    turn: refusal(400, 'file "/" is a directory'),
  },
  {
    because: 'Logs are stdout by default',
    rows: /^unary\/logs\/no-type$/,
    turn: all(
      status(200),
      contentType('application/json'),
      withLines(NOSNIFF),
      body(['0 "AAAA"', '1 "BBBB"', '2 "CCCC"'].map((rest) => `alloc/logs/quiet.stdout.${rest} @4`).join('\n')),
    ),
  },
  {
    because: 'Stray files among the logs',
    rows: /^unary\/logs\/stray-file$/,
    turn: all(
      status(200),
      contentType('application/json'),
      withLines(NOSNIFF),
      body(String.raw`alloc/logs/q12.stdout.0 "x\n" @2`),
    ),
  },
]

const paths: Difference[] = [
  {
    because: 'Names that resemble forbidden names',
    rows: /^unary\/ls\/dotdotfoo$/,
    turn: body('open ..foo-in/f.txt: not a directory'),
  },
  {
    because: 'Names that resemble forbidden names',
    rows: /^unary\/stat\/dotdotfoo$/,
    turn: all(
      status(200),
      body(
        'compact {"ContentType":"text/plain; charset=utf-8","FileMode":"-rw-r--r--","IsDir":false,"ModTime":"a time","Name":"f.txt","Size":6}',
      ),
    ),
  },
  {
    because: 'Names that resemble forbidden names',
    rows: /^unary\/(cat|readat)\/(dotdotfoo|secrets-x)( completed)?$/,
    turn: (answer, row) => content(row.name.includes('dotdotfoo') ? 'inside' : 'not secret')(answer, row),
  },
  {
    because: 'Names that resemble forbidden names',
    rows: /^unary\/stream\/(dotdotfoo|secrets-x) completed$/,
    turn: (answer, row) => {
      const shown = row.name.includes('dotdotfoo') ? '"inside" @6' : '"not secret" @10'
      return all(status(200), body(`${askedPath(row)} ${shown}`))(answer, row)
    },
  },
  {
    because: 'Links that lead out, or to secrets',
    rows: /^unary\/(ls|stat|cat|readat|stream)\/link-sibling( completed)?$/,
    turn: refusal(400, 'Path escapes the alloc directory'),
  },
  {
    because: 'Links that lead out, or to secrets',
    rows: new RegExp(`^unary/${READERS}/link-secret(-abs)?( completed)?$`),
    turn: (answer, row) => refusal(403, `Reading secret file prohibited: ${askedPath(row)}`)(answer, row),
  },
  {
    because: 'The content of secrets is not sniffed',
    rows: /^unary\/stat\/(secret|secret-dotted|private|link-secret|link-secret-abs)$/,
    turn: bodyOf((text) => text.replace('text/plain; charset=utf-8', 'application/octet-stream')),
  },
  {
    because: 'Pipes are not opened',
    rows: /^unary\/stat\/fifo$/,
    turn: (answer) => ({
      ...answer,
      status: 200,
      headers: ['content-type: text/plain; charset=utf-8', 'vary: Accept-Encoding', 'vary: Origin'],
      body: 'compact {"ContentType":"application/octet-stream","FileMode":"prw-r--r--","IsDir":false,"ModTime":"a time","Name":"fifo","Size":0}',
      end: 'ended',
    }),
  },
]

/** Texts of cat and readat that are errors, which were sent as if they were the file. */
const DISGUISED =
  /^(must provide|Unknown allocation|alloc lookup|stat |file "|Path escapes|Failed to check|Reading |error parsing|can't seek)/

const statuses: Difference[] = [
  {
    because: 'Errors have their status',
    rows: /^unary\/(cat|readat)\//,
    turn: only(
      ({ status: code, body: text }) => code === 200 && DISGUISED.test(text),
      (answer, row) => refusal(statusOf(answer.body))(answer, row),
    ),
  },
  {
    because: 'Errors have their status',
    rows: new RegExp(`^unary/${READERS}/missing-closed( completed)?$`),
    turn: (answer, row) => refusal(404, `stat ${askedPath(row)}: no such file or directory`)(answer, row),
  },
  {
    because: 'A missing file is 404',
    rows: /^unary\/stream\/.* completed$/,
    turn: only((answer) => isError(answer) && answer.body.endsWith('no such file or directory'), status(404)),
  },
  {
    because: 'Secrets are refused with 403',
    rows: /^unary\/stream\/.* completed$/,
    turn: only((answer) => isError(answer) && answer.body.startsWith('Reading '), status(403)),
  },
  {
    because: "A caller's mistake is 400",
    rows: /^unary\/(ls|stat|stream)\//,
    turn: only(({ status: code }) => code === 500, status(400)),
  },
  {
    because: 'Different error texts',
    rows: /./,
    turn: only(
      (answer) => isError(answer),
      bodyOf((text) =>
        text.replace(/^Failed to check .*\0.*$/, 'invalid path: it contains a NUL byte').replace('EvalSymlinks: ', ''),
      ),
    ),
  },
  {
    because: 'Different error texts',
    rows: /^unary\/stream\/offset-neg$/,
    turn: bodyOf((text) => `${text}; count from the end with origin=end`),
  },
]

function statusOf(text: string): number {
  if (text.startsWith('Reading ')) return 403
  return text.startsWith('Unknown allocation') || text.endsWith('no such file or directory') ? 404 : 400
}

const answers: Difference[] = [
  {
    because: 'Byte ranges',
    rows: /^unary\/cat\//,
    turn: only(({ status: code }) => code === 200, withLines('accept-ranges: bytes')),
  },
  {
    because: 'Byte ranges',
    rows: /^unary\/cat\/range$/,
    turn: all(status(206), withLines('content-range: bytes 1-2/5'), body('el')),
  },
  {
    because: 'nosniff',
    rows: /^unary\/(logs|stream)\//,
    turn: only(({ status: code }) => code === 200, withLines(NOSNIFF)),
  },
  {
    because: 'Streams with nothing to send',
    rows: /^unary\/(stream|logs)\//,
    turn: only(
      ({ status: code, body: text }) => code === 200 && text === '',
      all(
        without('content-length: '),
        only((_, row) => row.path.includes('/fs/stream/'), contentType('text/plain; charset=utf-8')),
      ),
    ),
  },
  {
    because: 'Offsets are exact',
    rows: /^unary\/stream\/big(-gzip)? completed$/,
    turn: body('alloc/data/big.txt 200000 bytes @200000'),
  },
  {
    because: 'Following starts immediately',
    rows: /^unary\/stream\/follow=.* completed$/,
    turn: only(
      ({ end }) => end === 'open',
      (answer) => ({ ...answer, head: 'at once', heartbeats: 'one at once, then every second' }),
    ),
  },
]

export const contentDifferences: readonly Difference[] = [...defaults, ...paths, ...statuses, ...answers]
