/**
 * Plays recorded exchanges with a stock server to the core of a test. What differs from one cluster to another (names,
 * shares, tokens, times) is learnt from the answers and put into the requests that follow, and compared by its form.
 */
import { readFileSync } from 'node:fs'
import type { CoreAnswer, CoreWorld } from '../helpers/core-world.ts'

export interface Exchange {
  readonly name: string
  readonly method: string
  readonly path: string
  readonly reqHeaders: Readonly<Record<string, string>>
  readonly reqBody: string | null
  readonly status: number
  readonly bodyText: string
}

/** Where the answer is meant to be another one, and why. */
export interface Difference {
  readonly why: string
  readonly status?: number
  /** What the error says instead. */
  readonly error?: RegExp
}

/** Values that belong to one cluster. */
const OWN = new Set([
  'nonce',
  'keys',
  'keys_base64',
  'root_token',
  'otp',
  'token',
  'encoded_token',
  'encoded_root_token',
  'pgp_fingerprint',
  'cluster_name',
  'cluster_id',
  'request_id',
  'version',
  'storage_type',
  'install_time',
])
/** What this server tells beside what the recorded one does. */
const MORE = new Set(['build_date'])

export function recorded(name: string): Exchange[] {
  const text = readFileSync(new URL(`../../fixtures/openbao/${name}.jsonl`, import.meta.url), 'utf8')
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line): Exchange => JSON.parse(line))
}

export class Player {
  readonly #world: CoreWorld
  /** Text of the recording to text of this cluster, longest first when they are put in. */
  readonly #texts = new Map<string, string>()
  /** Names of exchanges that were played. */
  readonly played: string[] = []

  constructor(world: CoreWorld) {
    this.#world = world
  }

  replace(theirs: string, ours: string): void {
    if (theirs !== '' && theirs !== ours) this.#texts.set(theirs, ours)
  }

  textFor(theirs: string): string {
    return this.#texts.get(theirs) ?? theirs
  }

  /** What is wrong with our answer to it; empty when it is as it should be. */
  async play(exchange: Exchange, difference?: Difference): Promise<string[]> {
    this.played.push(exchange.name)
    const { 'X-Vault-Token': token } = exchange.reqHeaders
    const answer = await this.#world.ask(
      exchange.method,
      this.#put(exchange.path.replace(/^\/v1\//, '')),
      exchange.reqBody === null ? undefined : this.#put(exchange.reqBody),
      { token: token === undefined ? null : this.#put(token) },
    )
    const wrong = difference ? differs(answer, difference) : this.#compare(exchange, answer)
    return wrong.map((each) => `${exchange.name}: ${each}; we answered ${answer.status} ${answer.text.trim()}`)
  }

  #put(text: string): string {
    const pairs = [...this.#texts].sort(([a], [b]) => b.length - a.length)
    return pairs.reduce((done, [theirs, ours]) => done.replaceAll(theirs, ours), text)
  }

  #compare({ bodyText, status }: Exchange, answer: CoreAnswer): string[] {
    const wrong = answer.status === status ? [] : [`status ${status} was recorded`]
    if (bodyText === '') return answer.text === '' ? wrong : [...wrong, 'no body was recorded']
    const theirs: unknown = JSON.parse(bodyText)
    this.#compareValues(theirs, answer.body, '', wrong)
    return wrong
  }

  #compareValues(theirs: unknown, ours: unknown, at: string, wrong: string[]): void {
    const name = at.split('.').at(-1) ?? ''
    if (isRecord(theirs) && isRecord(ours)) {
      for (const key of new Set([...Object.keys(theirs), ...Object.keys(ours)])) {
        if (MORE.has(key)) continue
        if (!(key in theirs) || !(key in ours)) wrong.push(`${at}.${key} is only in one of the two`)
        else this.#compareValues(theirs[key], ours[key], `${at}.${key}`, wrong)
      }
    } else if (Array.isArray(theirs) && Array.isArray(ours)) {
      if (theirs.length !== ours.length) wrong.push(`${at} had ${theirs.length} members`)
      theirs.forEach((each, index) => this.#compareValues(each, ours[index], at, wrong))
    } else if (OWN.has(name) && typeof theirs === 'string' && typeof ours === 'string') {
      if ((theirs === '') !== (ours === '')) wrong.push(`${at} was ${theirs === '' ? 'empty' : 'not empty'}`)
      this.replace(theirs, ours)
    } else if (this.#put(JSON.stringify(theirs)) !== JSON.stringify(ours)) {
      wrong.push(`${at} was ${this.#put(JSON.stringify(theirs))}`)
    }
  }
}

function differs({ body, status }: CoreAnswer, difference: Difference): string[] {
  const wrong = difference.status === undefined || difference.status === status ? [] : [`not ${difference.status}`]
  if (difference.error && !difference.error.test(body.errors?.[0] ?? '')) wrong.push(`not ${difference.error}`)
  return wrong
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
