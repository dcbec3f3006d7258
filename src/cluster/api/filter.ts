/**
 * The expression language of `filter=`, as users of the field's lists know it:
 *
 *     Status == ready and (Meta.rack == "r1" or "raw_exec" in Drivers) and Name not matches "^old-"
 *
 * `==`, `!=`, `is empty`, `is not empty`, `contains`, `not contains`, `in`, `not in`, `matches`, `not matches`, joined by
 * `and` (binds tighter), `or`, `not` and parentheses. A selector is dotted or quoted: `Meta.rack`, `Meta["a.b"]`. A
 * value is a word, a number, or text in double quotes or backticks. What a record does not have is empty and equals
 * nothing. Patterns are RE2's and found anywhere in the text.
 *
 * An expression comes from whoever may list: its length, its depth and the size of its patterns are bounded, and matching
 * takes time in proportion to expression and record, whatever they are.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { Refusal } from '../../platform/errors.ts'

const LENGTH_MAX = 4096
const DEPTH_MAX = 64
const PATTERN_LENGTH_MAX = 200
/** What `{n}` in a pattern may repeat, all counts multiplied, and instructions of the compiled pattern. */
const REPEAT_MAX = 64
const PROGRAM_SIZE_MAX = 1000
/** Longer texts are matched by their beginning: attributes and metadata are short. */
const TEXT_LENGTH_MAX = 4096

const NO_ENGINE =
  'this server cannot match patterns, the package re2js of its installation cannot be loaded: run "npm ci --omit=dev" there, or filter without "matches"'

type Datum = Readonly<Record<string, unknown>>

export type Filter = (record: Datum) => boolean

/**
 * What an expression means for a record. `fields` are the names that a selector may begin with.
 * @throws Refusal `invalid_request` that says where and why, as `line:column (offset): ...`.
 */
export function parseFilter(text: string, fields: ReadonlySet<string>): Filter {
  if (text.length > LENGTH_MAX) {
    throw new Refusal('invalid_request', `failed to read filter expression: longer than ${LENGTH_MAX} characters`)
  }
  return new Parser(text, fields).parse()
}

/** Reads `text` from left to right; every method leaves the place behind what it took. */
class Parser {
  readonly #text: string
  readonly #fields: ReadonlySet<string>
  #at = 0
  #depth = 0

  constructor(text: string, fields: ReadonlySet<string>) {
    this.#text = text
    this.#fields = fields
  }

  parse(): Filter {
    const filter = this.#or()
    this.#space()
    if (this.#at < this.#text.length) throw this.#wrong('expected and, or, or the end')
    return filter
  }

  #or(): Filter {
    const terms = [this.#and()]
    while (this.#word('or')) terms.push(this.#and())
    return terms.length === 1 && terms[0] ? terms[0] : (record) => terms.some((term) => term(record))
  }

  #and(): Filter {
    const terms = [this.#not()]
    while (this.#word('and')) terms.push(this.#not())
    return terms.length === 1 && terms[0] ? terms[0] : (record) => terms.every((term) => term(record))
  }

  #not(): Filter {
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

  /** `value in selector`, or a selector and what is said about it. */
  #match(): Filter {
    const start = this.#at
    const value = this.#value()
    if (value !== undefined) {
      if (this.#word('in')) return membership(this.#selector(), value, true)
      const behind = this.#at
      if (this.#word('not') && this.#word('in')) return membership(this.#selector(), value, false)
      this.#at = behind
    }
    this.#at = start
    const selector = this.#selector()
    if (this.#sign('==')) return equality(selector, this.#neededValue(), true)
    if (this.#sign('!=')) return equality(selector, this.#neededValue(), false)
    if (this.#word('is')) return this.#emptiness(selector)
    const wanted = !this.#word('not')
    if (this.#word('contains')) return membership(selector, this.#neededValue(), wanted)
    if (this.#word('matches')) return this.#pattern(selector, wanted)
    const operators = wanted ? '==, !=, is, contains, not contains, matches or not matches' : 'contains or matches'
    throw this.#wrong(`expected ${operators}`)
  }

  #emptiness(selector: Selector): Filter {
    const wanted = !this.#word('not')
    if (!this.#word('empty')) throw this.#wrong('expected empty')
    return (record) => isEmpty(selector(record)) === wanted
  }

  #pattern(selector: Selector, wanted: boolean): Filter {
    this.#space()
    const start = this.#at
    const text = this.#neededValue()
    const pattern = compile(text)
    if (typeof pattern === 'string') throw this.#wrong(pattern, start)
    return (record) => {
      const found = selector(record)
      if (typeof found !== 'string') return !wanted
      return pattern.matcher(found.slice(0, TEXT_LENGTH_MAX)).find() === wanted
    }
  }

  #selector(): Selector {
    this.#space()
    const start = this.#at
    const first = this.#take(/[A-Za-z][A-Za-z0-9_]*/y)
    if (first === undefined) throw this.#wrong('expected the name of a field')
    if (!this.#fields.has(first)) {
      const names = [...this.#fields].sort().join(', ')
      throw this.#wrong(`there is no field ${JSON.stringify(first.slice(0, 64))}, there are ${names}`, start)
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

  #neededValue(): string {
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
      if (/["`]/.test(this.#text[this.#at] ?? '')) throw this.#wrong('this text has no end')
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
    const behind = this.#text[this.#at + word.length]
    if (!this.#text.startsWith(word, this.#at) || (behind !== undefined && !/[\s()"`]/.test(behind))) return false
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

type Selector = (record: Datum) => unknown

/** The value at a path. A key may hold dots of its own: the rest of the path is tried as one key as well. */
function resolve(record: Datum, path: readonly string[]): unknown {
  let value: unknown = record
  for (const [at, part] of path.entries()) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
    if (!Object.hasOwn(value, part)) return own(value, path.slice(at).join('.'))
    value = own(value, part)
  }
  return value
}

function own(value: object, key: string): unknown {
  return Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined
}

function isEqual(found: unknown, value: string): boolean {
  if (typeof found === 'string') return found === value
  if (typeof found === 'number') return value !== '' && found === Number(value)
  return typeof found === 'boolean' && String(found) === value
}

function equality(selector: Selector, value: string, wanted: boolean): Filter {
  return (record) => isEqual(selector(record), value) === wanted
}

/** Part of a text, an entry of a list, a key of a map. */
function membership(selector: Selector, value: string, wanted: boolean): Filter {
  const has = (found: unknown): boolean => {
    if (typeof found === 'string') return found.includes(value)
    if (Array.isArray(found)) return found.some((each) => isEqual(each, value))
    return typeof found === 'object' && found !== null && Object.hasOwn(found, value)
  }
  return (record) => has(selector(record)) === wanted
}

function isEmpty(found: unknown): boolean {
  if (found === undefined || found === null || found === '') return true
  if (Array.isArray(found)) return found.length === 0
  return typeof found === 'object' && Object.keys(found).length === 0
}

/** Loaded with the first pattern, as in `host/logs/search/line-pattern`: every server starts, and few are asked for patterns. */
let engine: typeof import('re2js') | undefined

function loadEngine(): typeof import('re2js') {
  try {
    engine ??= createRequire(import.meta.url)('re2js') as typeof import('re2js')
  } catch {
    // Nothing else of a server needs the package, so it starts without it.
    throw new Refusal('unavailable', NO_ENGINE)
  }
  return engine
}

/** The compiled pattern, or what is wrong with it. */
function compile(text: string): RE2JS | string {
  if (text.length > PATTERN_LENGTH_MAX) return `the pattern is longer than ${PATTERN_LENGTH_MAX} characters`
  let repeats = 1
  for (const [, least = '0', most = ''] of text.matchAll(/\{(\d+)(?:,(\d*))?\}/g)) {
    repeats *= Math.max(1, Number(least), Number(most))
  }
  if (repeats > REPEAT_MAX) return `the counts of the pattern make more than ${REPEAT_MAX}`
  const { RE2JS: Engine } = loadEngine()
  try {
    const pattern = Engine.compile(text)
    return pattern.programSize() > PROGRAM_SIZE_MAX ? 'the pattern makes too large a program' : pattern
  } catch (error) {
    return `the pattern is not in RE2's syntax: ${error instanceof Error ? error.message.slice(0, 200) : 'unknown'}`
  }
}
