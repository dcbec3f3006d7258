/**
 * Recognises the lines of a stack trace, which belong to the line before them: those of Java, JavaScript, Python, Go, .NET, Ruby, Rust and PHP.
 * Indented lines that do not follow a line of a trace are lines of their own.
 */

/** Lines that continue the line before in any case. */
const CONTINUES =
  /^(?:\s+at |\s+\.{3} \d+ (?:more|common)|\s+File "|(?:\s*)(?:Caused by|Suppressed): |\s+from \S+:\d+:in |\s+#\d+ |\s*\d+: +\S+::|Stack trace:|stack backtrace:|goroutine \d+ \[)/
/** Lines that begin a trace, so that indented lines after them belong to it. */
const BEGINS =
  /^(?:Traceback \(most recent call last\)|panic: |fatal error: |thread '.*' panicked at |(?:\w+\.)*\w*(?:Error|Exception|Throwable)\b)/
const PYTHON_BEGINS = /^Traceback \(most recent call last\)/
const PYTHON_ENDS = /^[A-Za-z_][\w.]*(?::|$)/
const GO_BEGINS = /^(?:panic: |fatal error: |goroutine \d+ \[)/
const GO_CONTINUES = /^(?:$|\[signal |goroutine \d+ \[|created by |exit status \d|\S[^(]*\(.*\)$)/
const ERROR_WORD = /\b(?:error|exception|fatal|panic)\b/i

type Kind = 'none' | 'message' | 'trace' | 'python' | 'go'

/** The state of one log. */
export class TraceJoiner {
  #kind: Kind = 'none'

  /** True if `text` belongs to the line before it in the same log. */
  continues(text: string): boolean {
    const kind = this.#kind
    const first = text.charCodeAt(0)
    const isIndented = first === 0x20 || first === 0x09
    if (CONTINUES.test(text) && (isIndented || kind !== 'none')) {
      this.#kind = text.startsWith('goroutine') ? 'go' : kind === 'python' || kind === 'go' ? kind : 'trace'
      return true
    }
    if (isIndented && kind !== 'none') {
      if (kind === 'message' && text.trim() === '') return false
      return true
    }
    if (kind === 'go' && GO_CONTINUES.test(text)) return true
    if (kind === 'python' && PYTHON_ENDS.test(text)) {
      this.#kind = 'trace'
      return true
    }
    // The message of a logger, and then the error.
    if (kind === 'message' && BEGINS.test(text)) {
      this.#kind = kindOfHead(text)
      return true
    }
    if (kind === 'trace' && (text === '}' || text === ')')) return true
    this.#kind = kindOfHead(text)
    return false
  }
}

function kindOfHead(text: string): Kind {
  if (PYTHON_BEGINS.test(text)) return 'python'
  if (GO_BEGINS.test(text)) return 'go'
  if (BEGINS.test(text)) return 'trace'
  return ERROR_WORD.test(text.length > 400 ? text.slice(0, 400) : text) ? 'message' : 'none'
}
