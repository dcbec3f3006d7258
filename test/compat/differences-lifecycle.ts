/** Where our answers around the end of allocations differ from the recorded ones. */
import type { Difference } from './judge.ts'
import {
  all,
  askedAllocation,
  askedPath,
  body,
  bodyOf,
  contentType,
  isError,
  listed,
  NOSNIFF,
  only,
  refusal,
  status,
  withLines,
  without,
} from './turns.ts'

export const lifecycleDifferences: readonly Difference[] = [
  {
    because: 'Following starts immediately',
    rows: /^lifecycle\/(complete|ending)\/.*follow/,
    turn: (answer) => ({
      ...answer,
      head: 'at once',
      heartbeats: answer.heartbeats === 'none' ? 'none' : 'one at once, then every second',
    }),
  },
  { because: 'nosniff', rows: /^lifecycle\/(complete|ending)\/(logs|stream)/, turn: withLines(NOSNIFF) },
  {
    because: 'Listings and file information are text/plain',
    rows: /\/(ls|stat\/log-fifo)$/,
    turn: only(({ status: code }) => code === 200, contentType('text/plain; charset=utf-8')),
  },
  { because: 'The manifest is listed', rows: /^lifecycle\/complete\/ls$/, turn: listed('alloc.json') },
  {
    because: 'Errors in a started stream',
    rows: /^lifecycle\/complete\/logs-follow-during-gc$/,
    turn: all(
      bodyOf((text) => text.replace(/\nthen .*$/s, '\nalloc/logs/web.stdout.0 file deleted @10')),
      (answer) => ({ ...answer, end: 'broken' }),
    ),
  },
  {
    because: 'Errors have their status',
    rows: /^lifecycle\/after-gc\/(cat|readat)$/,
    turn: refusal(404),
  },
  {
    because: 'Collected allocations',
    rows: /^lifecycle\/(after-gc\/(ls|ls-path|stat)|gcall\/after-ls)$/,
    turn: bodyOf((_, row) => `state for allocation ${askedAllocation(row)} not found on client`),
  },
  {
    because: 'Collecting twice',
    rows: /^more\/allocgc\/try[345]$/,
    turn: all(status(200), body(''), without('content-type: '), withLines('content-length: 0')),
  },
  {
    because: 'Compression',
    rows: /^lifecycle\/allocgc\/stopped-gzip$/,
    turn: all(without('content-encoding: ', 'content-length: '), withLines('content-length: 0')),
  },
  { because: 'Vary', rows: /^lifecycle\/gcall\/with-stopped$/, turn: withLines('vary: Origin') },
  {
    because: 'Pipes are not opened',
    rows: /^more\/cat\/log-fifo$/,
    turn: (answer, row) =>
      refusal(400, `file "${askedPath(row)}" is a named pipe, only regular files can be read`)(answer, row),
  },
  {
    because: 'Pipes are not opened',
    rows: /^more\/stat\/log-fifo$/,
    turn: bodyOf((text) => text.replace('text/plain; charset=utf-8', 'application/octet-stream')),
  },
  { because: 'nosniff', rows: /./, turn: only(isError, withLines(NOSNIFF)) },
]
