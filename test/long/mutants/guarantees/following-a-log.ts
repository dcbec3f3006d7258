/** Mutants of "Following a log". */
import type { Exemption, Mutant } from '../mutant-list.ts'

const NOT_PROMISED = 'a limit: says what is not promised'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'Each frame carries the exact end offset',
    before: 'label.encodeFrames(data, 0, data.length, start, buffer, 0)',
    after: 'label.encodeFrames(data, 0, data.length, start + 1, buffer, 0)',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: 'Bytes written to the old file up to one second later are still delivered',
    before: 'untilMs: performance.now() + LINGER_MS',
    after: 'untilMs: performance.now()',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: '**What can be lost.** A file that was created and removed before the follower reached it',
    before: 'const candidates = this.#next\n',
    after: 'const candidates = this.#next.slice(-1)\n',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: 'the last 256 bytes read must still precede the new bytes',
    before: 'else if ((closely || (stat.size === this.size && modified)) && !this.#edgeMatches()) this.rewritten()',
    after: '',
    test: 'test/host/logs/tail-stream-property.test.ts',
  },
  {
    promise: '**Deletion** is reported',
    before: '} catch {\n      this.deleted = true\n    }',
    after: '} catch {\n      this.deleted = false\n    }',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: 'A log waits for a higher index and never replays an older file',
    before: '(index) => index > this.#floor || (deleted &&',
    after: '(index) => index !== this.#floor || (deleted &&',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: '**Latency.** An event wakes the reader immediately',
    before: 'this.#pollEvery(SAFETY_POLL_MS)',
    after: '',
    test: 'test/host/logs/tail-heartbeat.test.ts',
  },
  {
    promise: 'If the system has no file watches left, the file is checked every 25 ms',
    before: 'this.#pollEvery(UNWATCHED_POLL_MS)',
    after: '',
    test: 'test/system/tail-unwatched.test.ts',
  },
  {
    promise: 'resumes exactly behind the last frame received',
    before: 'if (left <= size - offset) return { index, offset: offset + left }',
    after: 'if (left < size - offset) return { index, offset: offset + left }',
    test: 'test/host/logs/resume.test.ts',
  },
  {
    promise: 'If the bytes at the cursor were deleted or rewritten, the first frame reports it',
    before: "mark.offset <= Number(content.stat.size) && edgeMatches(mark, content.fd) ? 'there'",
    after: "mark.offset <= Number(content.stat.size) ? 'there'",
    test: 'test/host/logs/resume-gone.test.ts',
  },
  {
    promise: 'The stream then starts at the oldest remaining byte that did not exist before',
    before: 'const isFresh = (index: number) => index >= first || logs.bornNs(index) > madeAtNs',
    after: 'const isFresh = (index: number) => index >= first',
    test: 'test/host/logs/resume-gone.test.ts',
  },
  {
    promise: '**Searching.** A line is matched as a whole, up to 60 KiB',
    before: 'if (bytes > LINE_BYTES_MAX) return truncatedLine(this.#kept, bytes, where)',
    after: 'if (bytes >= LINE_BYTES_MAX) return truncatedLine(this.#kept, bytes, where)',
    test: 'test/host/logs/search/line-filter.test.ts',
  },
  {
    promise: '**`since`** selects by the modification times of the files',
    before: 'if (timeMs >= sinceMs) return { stamped: true, found',
    after: 'if (timeMs > sinceMs) return { stamped: true, found',
    test: 'test/host/logs/locate/log-position.test.ts',
  },
  {
    promise: '**End of stream.** A stream that cannot continue',
    before: "if (this.#directoryGone) throw new Fault('the log directory was removed')",
    after: "if (this.#directoryGone) return { step: { kind: 'end' }, path, mark }",
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: '**Truncation** is reported',
    before: 'Math.abs(Date.now() - stat.mtimeMs) < RECENT_MS',
    after: 'Math.abs(performance.now() - stat.mtimeMs) < RECENT_MS',
    test: 'test/host/logs/follow/followed-file.test.ts',
  },
  {
    promise: '**Resuming.** `cursor=` resumes exactly behind the last frame received',
    before: '  mark.offset = 0\n  mark.edgeLength = 0\n',
    after: '  mark.offset = 0\n',
    test: 'test/host/logs/merged-logs.test.ts',
    testName: 'cursor of another log after a truncation',
  },
]

export const EXEMPTIONS: readonly Exemption[] = [
  { promise: 'That a reader sees a line before its supervisor has flushed it.', reason: NOT_PROMISED },
  { promise: "Order between a task's two outputs", reason: NOT_PROMISED },
  { promise: 'That two servers count alike', reason: NOT_PROMISED },
  { promise: 'Any property on a file system that reports wrong sizes', reason: NOT_PROMISED },
]
