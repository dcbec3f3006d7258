/**
 * What happened to each file while the recorded streams were followed, and when. The times are those of the recordings,
 * as far as their frames tell them: later than the first frame, and apart by more than a poll.
 */
import { appendFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { patterned, put } from './host.ts'

export const ALLOC = 'e8f21c8b-f6d3-dc16-5feb-3dfc63675616'
export const NODE = '751c8790-d209-9e88-f697-7207ac6bdaaa'

type Step = readonly [atMs: number, act: (path: string) => void]

export interface Scenario {
  /** Names of the streams that watch it, without the recording's name. */
  readonly rows: readonly string[]
  /** The files as they are when the streams begin, below the directory of data or of logs. */
  readonly files: Readonly<Record<string, string | Buffer>>
  readonly steps: readonly Step[]
}

const append =
  (name: string, text: string | Buffer): ((path: string) => void) =>
  (path) =>
    appendFileSync(join(path, name), text)
const create =
  (name: string, text: string): ((path: string) => void) =>
  (path) => {
    put(join(path, `.${name}.new`), text)
    renameSync(join(path, `.${name}.new`), join(path, name))
  }
const remove =
  (name: string): ((path: string) => void) =>
  (path) =>
    rmSync(join(path, name))
const truncate =
  (name: string): ((path: string) => void) =>
  (path) =>
    truncateSync(join(path, name))
const rewrite =
  (name: string, text: string): ((path: string) => void) =>
  (path) =>
    writeFileSync(join(path, name), text)

const lines = Array.from({ length: 100 }, (_, n) => `line ${String(n).padStart(3, '0')}\n`)

export const DATA: readonly Scenario[] = [
  { rows: ['delete'], files: { 'direct-del': 'delete me' }, steps: [[500, remove('direct-del')]] },
  { rows: ['rename-over'], files: { 'direct-ren': 'old inode' }, steps: [[500, create('direct-ren', 'new inode')]] },
  { rows: ['offset-past-end'], files: { 'direct-past': 'hello' }, steps: [[1100, append('direct-past', ' world')]] },
  { rows: ['empty-then-grow'], files: { 'direct-grow0': '' }, steps: [[1000, append('direct-grow0', 'born')]] },
  { rows: ['origin-end-0'], files: { 'direct-end': '0123456789' }, steps: [[1000, append('direct-end', 'ABC')]] },
  {
    rows: ['append'],
    files: { 'direct-app': 'start\n' },
    steps: [
      [400, append('direct-app', 'one\n')],
      [1000, append('direct-app', 'two\n')],
      [1020, append('direct-app', 'three\n')],
      [1400, append('direct-app', patterned(70_000))],
    ],
  },
  { rows: ['idle-3s'], files: { 'direct-idle': 'idle' }, steps: [] },
  {
    rows: ['truncate'],
    files: { 'direct-trunc': 'x'.repeat(1000) },
    steps: [
      [450, truncate('direct-trunc')],
      [1400, append('direct-trunc', 'after truncation')],
      [2400, append('direct-trunc', ' more')],
    ],
  },
  { rows: ['204608-bytes'], files: { 'direct-bigf': patterned(204_608) }, steps: [] },
  { rows: ['131072-bytes'], files: { 'direct-exactf': patterned(131_072) }, steps: [] },
  { rows: ['gzip'], files: { 'direct-gz': 'gz\n' }, steps: [[600, append('direct-gz', 'more\n')]] },
  {
    rows: ['truncate-rewrite-longer'],
    files: { 'direct-trw': 'y'.repeat(1000) },
    steps: [[600, rewrite('direct-trw', 'Z'.repeat(1500))]],
  },
  {
    rows: ['100-small-appends'],
    files: { 'direct-many': '' },
    steps: lines.map((line, n) => [400 + n * 20, append('direct-many', line)]),
  },
]

export const LOGS: readonly Scenario[] = [
  { rows: ['delete-only'], files: { 'q7.stdout.0': 'only' }, steps: [[700, remove('q7.stdout.0')]] },
  { rows: ['starts-at-3'], files: { 'q8.stdout.3': 'from three' }, steps: [] },
  {
    rows: ['end-10', 'append'],
    files: { 'q2.stdout.0': 'A0\n' },
    steps: [
      [400, append('q2.stdout.0', 'A1\n')],
      [1150, append('q2.stdout.0', 'A2\n')],
    ],
  },
  {
    rows: ['idle-framed', 'idle-plain', 'idle-plain-end-past'],
    files: { 'q1.stdout.0': 'idle\n' },
    steps: [[1400, append('q1.stdout.0', 'X\n')]],
  },
  { rows: ['empty-plain'], files: { 'q10.stdout.0': '' }, steps: [[1400, append('q10.stdout.0', 'first byte\n')]] },
  {
    rows: ['gap'],
    files: { 'q4.stdout.0': 'g0\n' },
    steps: [
      [600, create('q4.stdout.7', 'g7\n')],
      [1600, append('q4.stdout.7', 'g7b\n')],
    ],
  },
  {
    rows: ['tail-written-after-next-exists'],
    files: { 'q9.stdout.0': 'late tail\n' },
    steps: [
      [600, create('q9.stdout.1', 'n1\n')],
      [640, append('q9.stdout.0', 'written late\n')],
      [1600, append('q9.stdout.1', 'n1b\n')],
    ],
  },
  {
    rows: ['truncate'],
    files: { 'q6.stdout.0': 't'.repeat(500) },
    steps: [
      [500, truncate('q6.stdout.0')],
      [1400, append('q6.stdout.0', 'after')],
    ],
  },
  {
    rows: ['delete-newest'],
    files: { 'q5.stdout.0': 'old', 'q5.stdout.1': 'new' },
    steps: [
      [800, remove('q5.stdout.1')],
      [2400, create('q5.stdout.2', 'two')],
    ],
  },
  {
    rows: ['rotate'],
    files: { 'q3.stdout.0': 'r0\n' },
    steps: [
      [400, append('q3.stdout.0', 'r0b\n')],
      [800, create('q3.stdout.1', 'r1\n')],
      [2000, create('q3.stdout.2', 'r2\n')],
      [3000, append('q3.stdout.2', 'r2b\n')],
    ],
  },
]
