/** Mutants of "Following a log". */
import type { Exemption, Mutant } from '../mutant-list.ts'

const NOT_PROMISED = 'a limit: says what is not promised'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'with the exact end offset in each frame',
    before: 'label.encodeFrames(data, 0, data.length, start, buffer, 0)',
    after: 'label.encodeFrames(data, 0, data.length, start + 1, buffer, 0)',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: 'Bytes written to the old file up to a second after that still come',
    before: 'untilMs: performance.now() + LINGER_MS',
    after: 'untilMs: performance.now()',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: '**What can be lost.** A file that was created *and* removed again before the follower came to it',
    before: 'const candidates = this.#next\n',
    after: 'const candidates = this.#next.slice(-1)\n',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: 'the last 256 bytes read must still stand before new ones',
    before: 'else if ((closely || (stat.size === this.size && modified)) && !this.#edgeStands()) this.rewritten()',
    after: '',
    test: 'test/host/logs/tail-stream-property.test.ts',
  },
  {
    promise: '**Deletion** is announced',
    before: '} catch {\n      this.deleted = true\n    }',
    after: '} catch {\n      this.deleted = false\n    }',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: 'a log waits for a higher index and never replays an older file',
    before: '(index) => index > this.#floor || (deleted &&',
    after: '(index) => index !== this.#floor || (deleted &&',
    test: 'test/host/logs/logs-rotation.test.ts',
  },
  {
    promise: '**How late.** An event wakes the reader at once',
    before: 'this.#pollEvery(SAFETY_POLL_MS)',
    after: '',
    test: 'test/host/logs/tail-heartbeat.test.ts',
  },
  {
    promise: 'Where the system has no file watches left, every 25 ms',
    before: 'this.#pollEvery(UNWATCHED_POLL_MS)',
    after: '',
    test: 'test/system/tail-unwatched.test.ts',
  },
  {
    promise: 'goes on exactly behind the last frame received',
    before: 'if (left <= size - offset) return { index, offset: offset + left }',
    after: 'if (left < size - offset) return { index, offset: offset + left }',
    test: 'test/host/logs/resume.test.ts',
  },
  {
    promise: 'If the bytes it points at are gone or were rewritten, the first frame says which',
    before: "mark.offset <= Number(content.stat.size) && edgeStands(mark, content.fd) ? 'there'",
    after: "mark.offset <= Number(content.stat.size) ? 'there'",
    test: 'test/host/logs/resume-gone.test.ts',
  },
  {
    promise: 'the stream begins at the oldest byte that is left and was not there before',
    before: 'const isFresh = (index: number) => index >= first || logs.bornNs(index) > madeAtNs',
    after: 'const isFresh = (index: number) => index >= first',
    test: 'test/host/logs/resume-gone.test.ts',
  },
  {
    promise: '**Searching.** A line is judged whole, up to 60 KiB',
    before: 'if (bytes > LINE_BYTES_MAX) return cutLine(this.#kept, bytes, where)',
    after: 'if (bytes >= LINE_BYTES_MAX) return cutLine(this.#kept, bytes, where)',
    test: 'test/host/logs/search/line-filter.test.ts',
  },
  {
    promise: '**`since`** goes by the files',
    before: 'if (timeMs >= sinceMs) return { stamped: true, found',
    after: 'if (timeMs > sinceMs) return { stamped: true, found',
    test: 'test/host/logs/locate/log-position.test.ts',
  },
  {
    promise: '**An end is an end.** A stream that cannot go on',
    before: "if (this.#abandoned) throw new Fault('the log directory is gone')",
    after: "if (this.#abandoned) return { step: { kind: 'end' }, path, mark }",
    test: 'test/host/logs/logs-rotation.test.ts',
  },
]

export const EXEMPTIONS: readonly Exemption[] = [
  { promise: 'That a reader sees a line before its supervisor flushed it.', reason: NOT_PROMISED },
  { promise: "Order between a task's two outputs", reason: NOT_PROMISED },
  { promise: 'That two servers count alike', reason: NOT_PROMISED },
  { promise: 'Anything about a file system that lies', reason: NOT_PROMISED },
]
