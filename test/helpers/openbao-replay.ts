/**
 * Replays recorded exchanges of OpenBao over HTTP and reports differing responses. Values that each run generates
 * (tokens, accessors, IDs, times) are matched by their form and position, and replace the recorded ones in later
 * requests. Intended differences are listed in a table with their reason; an unlisted difference fails, and so does an
 * entry that matches nothing.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { inspect } from 'node:util'

export interface Recorded {
  readonly name: string
  readonly method: string
  readonly path: string
  /** A header that is null was not sent. */
  readonly reqHeaders?: Readonly<Record<string, string | null>>
  readonly reqBody?: string | null
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly bodyText?: string
}

export interface Difference {
  /** Names of exchanges, or a pattern for them. */
  readonly exchange: string | RegExp
  /** The differing part: `status`, or a path into the body such as `data.keys`; a RegExp for several. */
  readonly what: string | RegExp
  readonly why: string
  /** The expected value, if more is known than the difference. */
  readonly ours?: RegExp
}

export interface ReplayOptions {
  readonly port: number
  /** The recorded root token and that of this run. */
  readonly rootToken?: { readonly recorded: string; readonly ours: string }
  readonly differences: readonly Difference[]
  /** Members that each cluster generates and that have no recognizable form, such as key shares. */
  readonly made?: ReadonlySet<string>
  /** Skipped exchanges that need the state of another server; later ones must not depend on them. */
  readonly skip?: readonly { readonly exchange: string | RegExp; readonly why: string }[]
  /** Runs before an exchange and replaces steps that the recording did by other means. */
  readonly before?: (exchange: Recorded, known: Substitutions) => Promise<void> | void
  /** Known substitutions before the first exchange. */
  readonly known?: Substitutions
  /** Recorded bodies are a subset: a response may have further members. */
  readonly isPartial?: boolean
}

export function recordedExchanges(file: string, folder = 'openbao'): Recorded[] {
  const path = join(import.meta.dirname, '../../fixtures', folder, `${file}.jsonl`)
  const lines = readFileSync(path, 'utf8').split('\n')
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Recorded)
}

interface Answer {
  readonly status: number
  readonly body: string
}

export function send(
  port: number,
  {
    body,
    headers,
    method,
    path,
  }: { method: string; path: string; headers: Record<string, string>; body?: string | Buffer },
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request({ port, host: '127.0.0.1', method, path, headers }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (part: string) => (text += part))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: text }))
      response.on('error', reject)
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

/** Values that differ in every run, by their form. */
const FORMS: readonly RegExp[] = [
  /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/,
  /^(s|b|hvs)\.[\w-]{20,}/,
  /^[A-Za-z0-9]{24}$/,
  /^[\w-]+(\/[\w-]+)*\/[A-Za-z0-9]{24}$/,
  /^h[0-9a-f]{64}$/,
  /^(auth_)?[a-z-]+_[0-9a-f]{8}([0-9a-f-]{28})?$/,
]

function fits(a: string, b: string): boolean {
  return FORMS.some((form) => form.test(a) && form.test(b))
}

/** Recorded values and their replacements in this run. */
export class Substitutions {
  readonly #ours = new Map<string, string>()

  learn(recorded: string, ours: string): void {
    if (recorded !== '' && recorded !== ours && !/^\d{4}-\d\d-/.test(recorded)) this.#ours.set(recorded, ours)
  }

  of(recorded: string): string {
    return this.#ours.get(recorded) ?? recorded
  }

  /** Replaces all known values in a text, the longest first, because one may be part of another. */
  apply(text: string): string {
    const pairs = [...this.#ours].sort(([a], [b]) => b.length - a.length)
    return pairs.reduce((done, [recorded, ours]) => done.replaceAll(recorded, ours), text)
  }
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return body
  }
}

/** Which field is wrong is said in the same words; what a value of its kind looks like, in our own. */
const FIELD_TEXT = /(error converting input for field "[^"]*": ).*/s

/** One difference. */
interface Finding {
  readonly what: string
  readonly recorded: string
  readonly ours: string
}

const NOTHING = '(nothing)'

function finding(what: string, recorded: unknown, ours: unknown): Finding {
  return { what, recorded: shown(recorded), ours: shown(ours) }
}

function shown(value: unknown): string {
  return value === undefined ? NOTHING : JSON.stringify(value)
}

class Comparison {
  readonly #known: Substitutions
  readonly #made: ReadonlySet<string>
  readonly isPartial: boolean

  constructor(known: Substitutions, made: ReadonlySet<string>, isPartial: boolean) {
    this.#known = known
    this.#made = made
    this.isPartial = isPartial
  }

  /** Collects the differences by path, and learns generated values. `name` is that of the nearest member. */
  of(recorded: unknown, ours: unknown, at: string, name = ''): Finding[] {
    if (typeof recorded === 'string' && typeof ours === 'string') {
      return this.#isSame(recorded, ours, name) ? [] : [finding(at, recorded, ours)]
    }
    if (Array.isArray(recorded) && Array.isArray(ours) && recorded.length === ours.length) {
      return recorded.flatMap((each, index) => this.of(each, ours[index], `${at}[${index}]`, name))
    }
    if (isRecord(recorded) && isRecord(ours)) {
      const names = new Set([...Object.keys(recorded), ...(this.isPartial ? [] : Object.keys(ours))])
      return [...names].flatMap((member) => {
        const inner = at === 'body' ? member : `${at}.${member}`
        const [theirs, own] = [recorded[member], ours[member]]
        if (!Object.hasOwn(ours, member) || !Object.hasOwn(recorded, member)) return [finding(inner, theirs, own)]
        return this.of(theirs, own, inner, member)
      })
    }
    return recorded === ours ? [] : [finding(at, recorded, ours)]
  }

  #isSame(recorded: string, ours: string, name: string): boolean {
    if (recorded === ours || this.#known.apply(recorded) === ours) return true
    if (FIELD_TEXT.test(recorded) && recorded.replace(FIELD_TEXT, '$1') === ours.replace(FIELD_TEXT, '$1')) return true
    if (this.#made.has(name) ? (recorded === '') !== (ours === '') : !fits(recorded, ours)) return false
    this.#known.learn(recorded, ours)
    return true
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function matches(text: string, pattern: string | RegExp): boolean {
  return typeof pattern === 'string' ? text === pattern : pattern.test(text)
}

/** Fails with all unlisted differences and with entries of the tables that match nothing. */
export async function replay(exchanges: readonly Recorded[], options: ReplayOptions): Promise<void> {
  const { before, differences, isPartial = false, known = new Substitutions(), made = new Set() } = options
  const { port, rootToken, skip = [] } = options
  if (rootToken) known.learn(rootToken.recorded, rootToken.ours)
  const comparison = new Comparison(known, made, isPartial)
  const unused = new Set<object>([...differences, ...skip])
  const faults: string[] = []
  for (const exchange of exchanges) {
    const skipped = skip.find((each) => matches(exchange.name, each.exchange))
    if (skipped) {
      unused.delete(skipped)
      continue
    }
    await before?.(exchange, known)
    for (const found of await findingsOf(exchange, port, known, comparison)) {
      const meant = differences.find((each) => isMeant(each, exchange, found))
      if (meant) unused.delete(meant)
      else {
        const { ours, recorded, what } = found
        faults.push(`${exchange.name} (${exchange.method} ${exchange.path}): ${what}: ${recorded} ≠ ${ours}`)
      }
    }
  }
  for (const each of unused) faults.push(`nothing is like this any more: ${inspect(each)}`)
  assert.deepEqual(faults, [])
}

function isMeant({ exchange, ours, what }: Difference, { name }: Recorded, found: Finding): boolean {
  return matches(name, exchange) && matches(found.what, what) && (!ours || ours.test(found.ours))
}

async function findingsOf(
  exchange: Recorded,
  port: number,
  known: Substitutions,
  comparison: Comparison,
): Promise<Finding[]> {
  const headers: Record<string, string> = {}
  for (const [name, value] of Object.entries(exchange.reqHeaders ?? {})) {
    // Computed again, because the body may have changed its length.
    if (value !== null && name.toLowerCase() !== 'content-length') headers[name] = known.apply(value)
  }
  const body = exchange.reqBody ? known.apply(exchange.reqBody) : undefined
  const asked = { method: exchange.method, path: known.apply(exchange.path), headers, ...(body ? { body } : {}) }
  const { body: text, status } = await send(port, asked)
  // Another status has another body, so one difference suffices.
  if (status !== exchange.status) {
    return [{ what: 'status', recorded: String(exchange.status), ours: `${status} ${text.slice(0, 200)}` }]
  }
  if (exchange.bodyText === undefined && comparison.isPartial) return []
  return comparison.of(parsed(exchange.bodyText ?? ''), parsed(text), 'body')
}
