/**
 * The expression language of `filter=`, a subset of that of the compatible system:
 *
 *     Status == ready and (Meta.rack == "r1" or "raw_exec" in Drivers) and Name not matches "^old-"
 *
 * `==`, `!=`, `is empty`, `is not empty`, `contains`, `not contains`, `in`, `not in`, `matches`, `not matches`, joined by
 * `and` (higher precedence), `or`, `not` and parentheses. A selector is dotted or quoted: `Meta.rack`, `Meta["a.b"]`. A
 * value is a word, a number, or text in double quotes or backticks. A missing field is empty and equals nothing. Patterns
 * have RE2 syntax and match anywhere in the text.
 *
 * Any caller that may list can send an expression. Therefore its length, its depth and the size of its patterns are bounded, and
 * matching takes time linear in the sizes of expression and record.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { Refusal } from '../../platform/errors.ts'

const LENGTH_MAX = 4096
const DEPTH_MAX = 64
const PATTERN_LENGTH_MAX = 200
/** Product of all repetition counts (`{n}`) of a pattern, and instructions of the compiled pattern. */
const REPEAT_MAX = 64
const PROGRAM_SIZE_MAX = 1000
/** Longer texts are truncated before matching. Attributes and metadata are shorter. */
const TEXT_LENGTH_MAX = 4096

const NO_ENGINE =
  'this server cannot match patterns, because its package re2js cannot be loaded: run "npm ci --omit=dev" in its installation directory, or filter without "matches"'

type FilteredRecord = Readonly<Record<string, unknown>>

export type FilterExpression = (record: FilteredRecord) => boolean

/**
 * Compiles an expression. `fields` are the first names that a selector may have.
 * @throws Refusal `invalid_request` with position and reason, as `line:column (offset): ...`.
 */
export function parseFilter(text: string, fields: ReadonlySet<string>): FilterExpression {
  if (text.length > LENGTH_MAX) {
    throw new Refusal('invalid_request', `failed to read filter expression: longer than ${LENGTH_MAX} characters`)
  }
  return new Parser(text, fields).parse()
}

/** Recursive descent parser; each method advances `#at` past what it has parsed. */
class Parser {
  readonly #text: string
  readonly #fields: ReadonlySet<string>
  #at = 0
  #depth = 0

  constructor(text: string, fields: ReadonlySet<string>) {
    this.#text = text
    this.#fields = fields
  }

  parse(): FilterExpression {
    const filter = this.#or()
    this.#space()
    if (this.#at < this.#text.length) throw this.#wrong('expected "and", "or" or the end of the expression')
    return filter
  }

  #or(): FilterExpression {
    const terms = [this.#and()]
    while (this.#word('or')) terms.push(this.#and())
    return terms.length === 1 && terms[0] ? terms[0] : (record) => terms.some((term) => term(record))
  }

  #and(): FilterExpression {
    const terms = [this.#not()]
    while (this.#word('and')) terms.push(this.#not())
    return terms.length === 1 && terms[0] ? terms[0] : (record) => terms.every((term) => term(record))
  }

  #not(): FilterExpression {
    if (++this.#depth > DEPTH_MAX) throw this.#wrong(`more than ${DEPTH_MAX} levels deep`)
    try {
      if (this.#word('not')) {
        const term = this.#not()
        return (record) => !term(record)
      }
      if (!this.#sign('(')) return this.#match()
      const inner = this.#or()
      if (!this.#sign(')')) throw this.#wrong('expected )')
      return inner
    } finally {
      this.#depth--
    }
  }

  /** `value in selector`, or a selector with an operator. */
  #match(): FilterExpression {
    const start = this.#at
    const value = this.#value()
    if (value !== undefined) {
      if (this.#word('in')) return membership(this.#selector(), value, true)
      const end = this.#at
      if (this.#word('not') && this.#word('in')) return membership(this.#selector(), value, false)
      this.#at = end
    }
    this.#at = start
    const selector = this.#selector()
    if (this.#sign('==')) return equality(selector, this.#requiredValue(), true)
    if (this.#sign('!=')) return equality(selector, this.#requiredValue(), false)
    if (this.#word('is')) return this.#emptiness(selector)
    const expected = !this.#word('not')
    if (this.#word('contains')) return membership(selector, this.#requiredValue(), expected)
    if (this.#word('matches')) return this.#pattern(selector, expected)
    const operators = expected ? '==, !=, is, contains, not contains, matches or not matches' : 'contains or matches'
    throw this.#wrong(`expected ${operators}`)
  }

  #emptiness(selector: Selector): FilterExpression {
    const expected = !this.#word('not')
    if (!this.#word('empty')) throw this.#wrong('expected empty')
    return (record) => isEmpty(selector(record)) === expected
  }

  #pattern(selector: Selector, expected: boolean): FilterExpression {
    this.#space()
    const start = this.#at
    const text = this.#requiredValue()
    const pattern = compile(text)
    if (typeof pattern === 'string') throw this.#wrong(pattern, start)
    return (record) => {
      const found = selector(record)
      if (typeof found !== 'string') return !expected
      return pattern.matcher(found.slice(0, TEXT_LENGTH_MAX)).find() === expected
    }
  }

  #selector(): Selector {
    this.#space()
    const start = this.#at
    const first = this.#take(/[A-Za-z][A-Za-z0-9_]*/y)
    if (first === undefined) throw this.#wrong('expected the name of a field')
    if (!this.#fields.has(first)) {
      const names = [...this.#fields].sort().join(', ')
      throw this.#wrong(`unknown field ${JSON.stringify(first.slice(0, 64))}, expected one of ${names}`, start)
    }
    const path = [first]
    for (;;) {
      const dotted = this.#take(/\.[A-Za-z0-9_-]+/y)
      if (dotted !== undefined) path.push(dotted.slice(1))
      else if (this.#take(/\[/y) === undefined) return (record) => resolve(record, path)
      else {
        const key = this.#quoted()
        if (key === undefined) throw this.#wrong('expected a key in quotes')
        if (this.#take(/\]/y) === undefined) throw this.#wrong('expected ]')
        path.push(key)
      }
    }
  }

  #requiredValue(): string {
    const value = this.#value()
    if (value === undefined) throw this.#wrong('expected a value')
    return value
  }

  #value(): string | undefined {
    this.#space()
    return this.#quoted() ?? this.#take(/[A-Za-z0-9_./:+-]+/y)
  }

  #quoted(): string | undefined {
    const start = this.#at
    const raw = this.#take(/`[^`]*`/y)
    if (raw !== undefined) return raw.slice(1, -1)
    const text = this.#take(/"(?:[^"\\]|\\[^])*"/y)
    if (text === undefined) {
      if (/["`]/.test(this.#text[this.#at] ?? '')) throw this.#wrong('missing closing quote')
      return undefined
    }
    return text.slice(1, -1).replace(/\\([^])/g, (_, character: string) => {
      const plain = ESCAPES[character]
      if (plain === undefined) throw this.#wrong(`unknown escape \\${character}`, start)
      return plain
    })
  }

  #word(word: string): boolean {
    this.#space()
    const next = this.#text[this.#at + word.length]
    if (!this.#text.startsWith(word, this.#at) || (next !== undefined && !/[\s()"`]/.test(next))) return false
    this.#at += word.length
    return true
  }

  #sign(sign: string): boolean {
    this.#space()
    if (!this.#text.startsWith(sign, this.#at)) return false
    this.#at += sign.length
    return true
  }

  #space(): void {
    this.#take(/\s+/y)
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#text)?.[0]
    this.#at += found?.length ?? 0
    return found
  }

  #wrong(what: string, at = this.#at): Refusal {
    const before = this.#text.slice(0, at)
    const line = before.split('\n').length
    const column = at - before.lastIndexOf('\n')
    return new Refusal('invalid_request', `failed to read filter expression: ${line}:${column} (${at}): ${what}`)
  }
}

const ESCAPES: Readonly<Record<string, string>> = { '"': '"', '\\': '\\', n: '\n', t: '\t', r: '\r', '/': '/' }

type Selector = (record: FilteredRecord) => unknown

/** The value at a path. A key may contain dots, so the rest of the path is also tried as one key. */
function resolve(record: FilteredRecord, path: readonly string[]): unknown {
  let value: unknown = record
  for (const [at, part] of path.entries()) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
    if (!Object.hasOwn(value, part)) return ownValue(value, path.slice(at).join('.'))
    value = ownValue(value, part)
  }
  return value
}

function ownValue(value: object, key: string): unknown {
  return Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined
}

function isEqual(found: unknown, value: string): boolean {
  if (typeof found === 'string') return found === value
  if (typeof found === 'number') return value !== '' && found === Number(value)
  return typeof found === 'boolean' && String(found) === value
}

function equality(selector: Selector, value: string, expected: boolean): FilterExpression {
  return (record) => isEqual(selector(record), value) === expected
}

/** True for a part of a text, an entry of a list, a key of a map. */
function membership(selector: Selector, value: string, expected: boolean): FilterExpression {
  const has = (found: unknown): boolean => {
    if (typeof found === 'string') return found.includes(value)
    if (Array.isArray(found)) return found.some((each) => isEqual(each, value))
    return typeof found === 'object' && found !== null && Object.hasOwn(found, value)
  }
  return (record) => has(selector(record)) === expected
}

function isEmpty(found: unknown): boolean {
  if (found === undefined || found === null || found === '') return true
  if (Array.isArray(found)) return found.length === 0
  return typeof found === 'object' && Object.keys(found).length === 0
}

/** Loaded with the first pattern, because few servers need it. */
let engine: typeof import('re2js') | undefined

function loadEngine(): typeof import('re2js') {
  try {
    engine ??= createRequire(import.meta.url)('re2js') as typeof import('re2js')
  } catch {
    // A server starts without the package, because only patterns need it.
    throw new Refusal('unavailable', NO_ENGINE)
  }
  return engine
}

/** The compiled pattern, or the error. */
function compile(text: string): RE2JS | string {
  if (text.length > PATTERN_LENGTH_MAX) return `the pattern is longer than ${PATTERN_LENGTH_MAX} characters`
  let repeats = 1
  for (const [, least = '0', most = ''] of text.matchAll(/\{(\d+)(?:,(\d*))?\}/g)) {
    repeats *= Math.max(1, Number(least), Number(most))
  }
  if (repeats > REPEAT_MAX) return `the repetition counts of the pattern exceed ${REPEAT_MAX}`
  const { RE2JS: Engine } = loadEngine()
  try {
    const pattern = Engine.compile(text)
    return pattern.programSize() > PROGRAM_SIZE_MAX ? 'the compiled pattern is too large' : pattern
  } catch (error) {
    return `invalid RE2 pattern: ${error instanceof Error ? error.message.slice(0, 200) : 'unknown'}`
  }
}
