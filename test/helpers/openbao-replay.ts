/**
 * Plays recorded exchanges of the compatible secrets server against ours, over HTTP, and tells where the answers differ.
 *
 * What a run makes anew (tokens, accessors, IDs, times) is matched by its form and by where it stands in the answer, and
 * put in place of the recorded one in all requests that follow. A difference that is meant is named in a table with its
 * reason; one that is not in the table fails, and so does an entry that no longer fits anything.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'

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
  /** Names of exchanges, or what they match. */
  readonly exchange: string | RegExp
  /** What differs: `status`, or members of the body as a path such as `data.keys`; a RegExp for several. */
  readonly what: string | RegExp
  readonly why: string
}

export interface ReplayOptions {
  readonly port: number
  /** The recorded root token and ours. */
  readonly rootToken: { readonly recorded: string; readonly ours: string }
  readonly differences: readonly Difference[]
  /** Exchanges that make no sense here (another server's state); the rest of the file must not need them. */
  readonly skip?: readonly { readonly exchange: string | RegExp; readonly why: string }[]
  /** Before an exchange, for what the recording did by other means. */
  readonly before?: (exchange: Recorded) => Promise<void> | void
}

export function recordedExchanges(file: string): Recorded[] {
  const path = join(import.meta.dirname, '../../fixtures/openbao', `${file}.jsonl`)
  const lines = readFileSync(path, 'utf8').split('\n')
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Recorded)
}

interface Answer {
  readonly status: number
  readonly body: string
}

export function send(
  port: number,
  { body, headers, method, path }: { method: string; path: string; headers: Record<string, string>; body?: string },
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

/** What is different in every run, by its form. */
const FORMS: readonly RegExp[] = [
  /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/,
  /^(s|b|hvs)\.[\w-]{20,}/,
  /^[A-Za-z0-9]{24}$/,
  /^(auth_)?[a-z-]+_[0-9a-f]{8}$/,
]

function fits(a: string, b: string): boolean {
  return FORMS.some((form) => form.test(a) && form.test(b))
}

class Substitutions {
  readonly #ours = new Map<string, string>()

  learn(recorded: string, ours: string): void {
    if (recorded !== ours && !/^\d{4}-/.test(recorded)) this.#ours.set(recorded, ours)
  }

  apply(text: string): string {
    let out = text
    for (const [recorded, ours] of this.#ours) out = out.replaceAll(recorded, ours)
    return out
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

/** Paths of what differs, each with both values. */
function compare(recorded: unknown, ours: unknown, at: string, known: Substitutions): string[] {
  if (typeof recorded === 'string' && typeof ours === 'string') {
    if (recorded === ours || known.apply(recorded) === ours) return []
    if (FIELD_TEXT.test(recorded) && recorded.replace(FIELD_TEXT, '$1') === ours.replace(FIELD_TEXT, '$1')) return []
    if (!fits(recorded, ours)) return [`${at}: ${JSON.stringify(recorded)} ≠ ${JSON.stringify(ours)}`]
    known.learn(recorded, ours)
    return []
  }
  if (Array.isArray(recorded) && Array.isArray(ours) && recorded.length === ours.length) {
    return recorded.flatMap((each, index) => compare(each, ours[index], `${at}[${index}]`, known))
  }
  if (isRecord(recorded) && isRecord(ours)) {
    const names = [...new Set([...Object.keys(recorded), ...Object.keys(ours)])]
    return names.flatMap((name) => {
      const inner = at === 'body' ? name : `${at}.${name}`
      if (!Object.hasOwn(ours, name)) return [`${inner}: ${JSON.stringify(recorded[name])} ≠ (nothing)`]
      if (!Object.hasOwn(recorded, name)) return [`${inner}: (nothing) ≠ ${JSON.stringify(ours[name])}`]
      return compare(recorded[name], ours[name], inner, known)
    })
  }
  return recorded === ours ? [] : [`${at}: ${JSON.stringify(recorded)} ≠ ${JSON.stringify(ours)}`]
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function matches(text: string, pattern: string | RegExp): boolean {
  return typeof pattern === 'string' ? text === pattern : pattern.test(text)
}

/** Fails with everything that differs and is in no table, and with entries of the tables that fit nothing. */
export async function replay(exchanges: readonly Recorded[], options: ReplayOptions): Promise<void> {
  const known = new Substitutions()
  known.learn(options.rootToken.recorded, options.rootToken.ours)
  const unused = new Set<object>([...options.differences, ...(options.skip ?? [])])
  const faults: string[] = []
  for (const exchange of exchanges) {
    const skipped = options.skip?.find((each) => matches(exchange.name, each.exchange))
    if (skipped) {
      unused.delete(skipped)
      continue
    }
    await options.before?.(exchange)
    for (const difference of await differencesOf(exchange, options.port, known)) {
      const what = difference.slice(0, difference.indexOf(': '))
      const meant = options.differences.find(
        (each) => matches(exchange.name, each.exchange) && matches(what, each.what),
      )
      if (meant) unused.delete(meant)
      else faults.push(`${exchange.name} (${exchange.method} ${exchange.path}): ${difference}`)
    }
  }
  for (const each of unused) faults.push(`nothing is like this any more: ${JSON.stringify(each)}`)
  assert.deepEqual(faults, [])
}

async function differencesOf(exchange: Recorded, port: number, known: Substitutions): Promise<string[]> {
  const headers: Record<string, string> = {}
  for (const [name, value] of Object.entries(exchange.reqHeaders ?? {})) {
    // It is counted anew: the body may have become longer.
    if (value !== null && name.toLowerCase() !== 'content-length') headers[name] = known.apply(value)
  }
  const body = exchange.reqBody ? known.apply(exchange.reqBody) : undefined
  const asked = { method: exchange.method, path: known.apply(exchange.path), headers, ...(body ? { body } : {}) }
  const { body: text, status } = await send(port, asked)
  // Another status comes with another body: once is enough.
  if (status !== exchange.status) return [`status: ${exchange.status} ≠ ${status} ${text.slice(0, 200)}`]
  return compare(parsed(exchange.bodyText ?? ''), parsed(text), 'body', known)
}
