/** Where followed files and logs differ from the recorded ones. */
import type { Difference } from './judge.ts'
import { all, body, bodyOf, NOSNIFF, only, refusal, withLines, without } from './turns.ts'

export const streamDifferences: readonly Difference[] = [
  {
    because: 'Following starts immediately',
    rows: /^streams\//,
    turn: (answer) => ({
      ...answer,
      head: 'at once',
      heartbeats: answer.heartbeats === 'none' ? 'none' : 'one at once, then every second',
    }),
  },
  { because: 'nosniff', rows: /^streams\/(logs|stream)-follow\//, turn: withLines(NOSNIFF) },
  { because: 'Compression', rows: /^streams\/stream-follow\/gzip/, turn: without('content-encoding: ') },
  {
    because: 'Offsets are exact',
    rows: /^streams\/stream-follow\/append/,
    turn: body('alloc/data/direct-app 70020 bytes @70020'),
  },
  {
    because: 'Offsets are exact',
    rows: /^streams\/stream-follow\/204608-bytes/,
    turn: body('alloc/data/direct-bigf 204608 bytes @204608'),
  },
  {
    because: 'Offsets are exact',
    rows: /^streams\/stream-follow\/131072-bytes/,
    turn: body('alloc/data/direct-exactf 131072 bytes @131072'),
  },
  {
    because: 'An offset past the end',
    rows: /^streams\/stream-follow\/offset-past-end/,
    turn: body(''),
  },
  {
    because: 'One event for one truncation',
    rows: /^streams\/(stream|logs)-follow\/truncate( completed)?$/,
    turn: bodyOf((text) => text.replace(/^(.* file truncated @0)\n\1$/m, '$1')),
  },
  {
    because: 'A file that is rewritten',
    rows: /^streams\/stream-follow\/truncate-rewrite-longer/,
    turn: body(
      [`"${'y'.repeat(1000)}" @1000`, 'file truncated @0', `"${'Z'.repeat(1500)}" @1500`]
        .map((line) => `alloc/data/direct-trw ${line}`)
        .join('\n'),
    ),
  },
  {
    because: 'A log file that is deleted',
    rows: /^streams\/logs-follow\/delete-only$/,
    turn: all(
      bodyOf((text) => text.replace(/\nthen .*$/s, '')),
      (answer) => ({ ...answer, end: 'open' }),
    ),
  },
  {
    because: 'A log file that is deleted',
    rows: /^streams\/logs-follow\/delete-newest$/,
    turn: bodyOf((text) =>
      text.replace(/^(.* file deleted @3)\n\1$/m, '$1').replace(/^alloc\/logs\/q5.stdout.0 .*\n/m, ''),
    ),
  },
  {
    because: 'The tail of a rotated file',
    rows: /^streams\/logs-follow\/tail-written-after-next-exists$/,
    // It comes as soon as it is written, with its own file and offset, between what is in the next file.
    turn: body(
      [
        String.raw`0 "late tail\n" @10`,
        String.raw`1 "n1\n" @3`,
        String.raw`0 "written late\n" @23`,
        String.raw`1 "n1b\n" @7`,
      ]
        .map((line) => `alloc/logs/q9.stdout.${line}`)
        .join('\n'),
    ),
  },
  {
    because: 'offset and limit must be given',
    rows: /^streams\/stream-follow\/[^ ]*$/,
    turn: only(
      (_, row) => !/[?&]offset=/.test(row.path),
      (answer, row) => ({
        ...bare(answer),
        ...refusal(400, 'error parsing offset: strconv.ParseInt: parsing "": invalid syntax')(bare(answer), row),
      }),
    ),
  },
]

function bare({ status, headers, body: text, end }: Parameters<Difference['turn']>[0]) {
  return { status, headers, body: text, end }
}
