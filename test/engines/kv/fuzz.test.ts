/**
 * Invalid requests: fields that are missing, of the wrong type, negative, too large, nested, full of odd
 * characters. None ends in a fault of ours, and what is refused has changed nothing. `OUTPOST_FUZZ_REQUESTS=50000` for a
 * long look, `OUTPOST_SEED` repeats a run.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CoreWorld } from '../../helpers/core-world.ts'
import { listenTo } from '../../helpers/core-listener.ts'
import { Random } from '../../helpers/frames.ts'
import { expectStatus as expect, openKv } from '../../helpers/kv-world.ts'
import { send } from '../../helpers/openbao-replay.ts'
import { openStream } from '../../helpers/watch-stream-client.ts'
import { eventually } from '../../helpers/eventually.ts'

const REQUESTS = Number(process.env['OUTPOST_FUZZ_REQUESTS'] ?? 600)
const SEED = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 2 ** 31)

const nested = (levels: number, open: string, close: string) => `${open.repeat(levels)}1${close.repeat(levels)}`

/** What stands between spaces and at the ends of lines. */
function words(text: string, ...more: readonly string[]): readonly [string, ...string[]] {
  const [first = '', ...rest] = text.trim().split(/\s+/)
  return [first, ...rest, ...more]
}

/** As they stand in a query, or in a path where they have no question mark. */
const TEXTS = words(
  `a b a/b d/e/f d/ none x%20y %C3%BC %F0%9F%98%80 __proto__ constructor 1 2
  % %25 %zz %2F %2e%2e ..%2fa a%2F..%2Fb . .. %00 a%0Ab %E2%80%8B %C2%A0 %ff%fe
  %ED%A0%80 %3f %23 %3Fversion=1 %5C %22 ~ * + a%20 %20 a//b // data%2Fa -0 0x10 1e3 NaN null true`,
  '',
  'x'.repeat(3000),
  'y/'.repeat(400),
  '%F0%9F%98%80'.repeat(300),
)

const NUMBERS = words(
  `0 -1 1 2 3 99 1.5 1e3 -0 00 %2B1 9007199254740993 99999999999999999999 -9223372036854775808 1e400
  x %20 1,2 0x1 true null [] %7B%7D 1_000 %D9%A1 %00`,
  '',
)

const CURSORS = words(`1-0 1-1 1-2 1-3 1-1-0 1-2-1 1-5-2 0-0 1-99999999999999 2-1 -1-1 1--1 1-1-1-1 1-x`, ...NUMBERS)

const TIMES = words(
  `2026-01-31T12:00:00Z 2099-01-31T12:00:00%2B01:00 0 -1 1700000000 999999999999 1e12 now 2026-13-45T99:99:99Z 2026-01-31
  2026-01-31T12:00:00 0000-00-00T00:00:00Z %00 T - 2026-01-31Tx+00:00`,
  '9'.repeat(40),
)

/** JSON of values that fit where they are put only now and then. */
const VALUES = words(
  String.raw`null true false 0 -1 1 2 1.5 1e3 -0 9007199254740993 1e400 12345678901234567890
  "" "a" "b" "a/b" "d/e/f" "new" "d/" "/" "//a" "../a" "a/./b" "%2e%2e/a" "100%"
  "\u0000" "a\nb" "\u200b" "\ud800" "\udc00x" "ü" "\ud83d\ude00" "__proto__" "\u0020" "1" "-1" "1,2" "true"
  "json" "env" "put" "check" "remove" "5s" "-5s" "9999999h"
  [] [[]] [1] [1,2] ["1"] [-1] [1.5] [null] [1e300] ["a=b"]
  {} {"a":1} {"a":{"b":null}} {"__proto__":{"x":1}} {"data":{}} {"":""} {"a":{"data":{"x":1}}}
  {"a":{"data":[]}} {"..":{"data":{}}} {"d/":{"data":{}}} {"\u0000":{"data":{}}} {"a":null} {"a": "`,
  `[${'1,'.repeat(2000)}1]`,
  `"${'x'.repeat(5000)}"`,
  `"${'€'.repeat(2000)}"`,
  nested(400, '{"a":', '}'),
  nested(1100, '[', ']'),
  `"${'v'.repeat(1 << 20)}"`,
  `{"big":"${'v'.repeat(1 << 20)}"}`,
)

const OPERATIONS = [
  'put',
  'patch',
  'delete',
  'undelete',
  'destroy',
  'remove',
  'check',
  'PUT',
  'move',
  '',
  '__proto__',
] as const
const PATHS = ['a', 'a', 'a', 'b', 'a/b', 'new', 'ü', 'd/e/f', 'none', 'd/'] as const

interface Request {
  readonly method: string
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/** As a header may have it: what is no escape, or none that prints, stays as it is. */
function printed(text: string): string {
  return /%(?![2-7][0-9A-Ea-e])/.test(text) ? text : decodeURIComponent(text)
}

interface Begun {
  readonly status: number
  readonly body: string
  readonly type?: string
}

/** As `send` for an endless response: returns the beginning of a stream. */
async function begun(port: number, { path, headers = {} }: Request, token: string): Promise<Begun> {
  const stream = await openStream(port, `secret/${path}`, { token, headers })
  let isOver = false
  void stream.ended.then(() => (isOver = true))
  const type = stream.response.headers['content-type'] ?? ''
  const isEvents = type === 'text/event-stream'
  const isStream = isEvents || type === 'application/x-ndjson'
  const whole = () =>
    stream
      .text()
      .split(isEvents ? '\n\n' : '\n')
      .slice(0, -1)
  // Events begin with how long to wait before the next attempt.
  await eventually(() => isOver || (isStream && whole().length > (isEvents ? 1 : 0)))
  stream.close()
  const told = isStream ? (whole().at(-1) ?? '') : stream.text()
  return { status: stream.status, body: isEvents ? dataOf(told) : told, type }
}

/** What an event holds as JSON; its cursor where it holds nothing. */
function dataOf(event: string): string {
  const lines = event.split('\n')
  for (const line of lines) assert.match(line, /^(?:id|event|data): ./, event)
  const data = lines.find((line) => line.startsWith('data: '))?.slice(6)
  return data ?? JSON.stringify(lines[0])
}

class Fuzzer {
  readonly #random: Random

  constructor(random: Random) {
    this.#random = random
  }

  #value(): string {
    return this.#random.pick(VALUES)
  }

  #text(): string {
    return this.#random.chance(0.7) ? this.#random.pick(['a', 'a', 'b', 'a/b', 'd', 'new']) : this.#random.pick(TEXTS)
  }

  /** Members, each of them there or not, some of them right. */
  #object(right: Readonly<Record<string, () => string>>): string {
    const members = Object.entries(right).flatMap(([name, value]) => {
      if (this.#random.chance(0.05)) return []
      const one = `${JSON.stringify(name)}:${this.#random.chance(0.85) ? value() : this.#value()}`
      return this.#random.chance(0.05) ? [one, `${JSON.stringify(name)}:${this.#value()}`] : [one]
    })
    if (this.#random.chance(0.1)) members.push(`"more":${this.#value()}`)
    return this.#random.chance(0.04) ? this.#value() : `{${members.join(',')}}`
  }

  #operation(): string {
    const pick = <T>(values: readonly [T, ...T[]]) => this.#random.pick(values)
    return this.#object({
      op: () => JSON.stringify(pick(OPERATIONS)),
      path: () => JSON.stringify(pick(PATHS)),
      data: () => pick(['{"x":1}', '{"x":null}', 'null', '{"y":{"z":1.0}}']),
      ...(this.#random.chance(0.5) && { versions: () => pick(['[1]', '[1,2]', '[0]', '[99]', '["1"]']) }),
      ...(this.#random.chance(0.3) && { cas: () => pick(['0', '1', '2', '-1', '"1"']) }),
    })
  }

  #body(kind: string): string {
    const some = <T>(make: () => T) => Array.from({ length: this.#random.between(0, 4) }, make)
    if (kind === 'transaction') {
      return this.#object({ operations: () => `[${some(() => this.#operation()).join(',')}]` })
    }
    if (kind === 'copy' || kind === 'move')
      return this.#object({ to: () => this.#random.pick(['"new"', '"c/d"', '"ü"', this.#value()]) })
    if (kind === 'import') {
      const secret = () => this.#object({ data: () => '{"x":1}', custom_metadata: () => '{"k":"v"}' })
      return this.#object({
        secrets: () => `{${some(() => `${JSON.stringify(this.#random.pick(PATHS))}:${secret()}`).join(',')}}`,
        ...(this.#random.chance(0.4) && { format: () => this.#random.pick(['"env"', '"json"']) }),
        ...(this.#random.chance(0.4) && {
          text: () => this.#random.pick(['"A=1"', '"export B=\'x\'"', '"=1"', '"A=\\""']),
        }),
        ...(this.#random.chance(0.2) && { dry_run: () => 'true' }),
      })
    }
    if (kind === 'data') return this.#object({ data: () => '{"x":1}', options: () => '{"cas":1}' })
    if (kind === 'metadata') {
      const names = ['max_versions', 'cas_required', 'delete_version_after', 'custom_metadata', 'metadata_cas']
      return this.#object(Object.fromEntries(names.map((name) => [name, () => this.#value()])))
    }
    return this.#object({ versions: () => '[1]' })
  }

  #query(fields: Readonly<Record<string, readonly [string, ...string[]]>>): string {
    const pairs = Object.entries(fields).flatMap(([name, values]) => {
      if (this.#random.chance(0.3)) return []
      const value = this.#random.chance(0.75) ? this.#random.pick(values) : this.#random.pick(TEXTS)
      return this.#random.chance(0.05) ? [`${name}=${value}`, `${name}=1`] : [`${name}=${value}`]
    })
    return pairs.length === 0 ? '' : `?${pairs.join('&')}`
  }

  /** A resumed request of a browser, or an invalid one. */
  #eventStream(): Readonly<Record<string, string>> {
    const accept = this.#random.pick(['text/event-stream', 'text/event-stream', 'text/event-stream;q=x', 'text/*', ','])
    const last = printed(this.#random.pick(CURSORS))
    return { Accept: accept, ...(this.#random.chance(0.7) && { 'Last-Event-ID': last }) }
  }

  next(): Request {
    const name = this.#text()
    const reads = {
      search: {
        name: TEXTS,
        custom_metadata: ['k=v', 'k=*', 'k', '=', '%00=x', 'k=%25'],
        after: TEXTS,
        limit: NUMBERS,
      },
      export: { format: ['json', 'env', 'xml', ''], after: TEXTS, limit: NUMBERS },
      // A request without a response is aborted after a short time.
      watch: {
        ...(this.#random.chance(0.6) && { cursor: CURSORS }),
        wait: ['0', '0', '0', '0', '0', '0', '0', '-1', '61', '1e9', 'x', '99999999999', '0.001', '-0', '%00'],
        ...(this.#random.chance(0.5) && { stream: ['true', 'true', 'true', '1', 'false', 'x'] as const }),
      },
      diff: { from: NUMBERS, to: NUMBERS, values: ['true', '1', 'x', ''] },
      data: { version: NUMBERS, at: TIMES },
      subkeys: { version: NUMBERS, depth: NUMBERS },
      metadata: { list: ['true', 'x'], after: TEXTS, limit: NUMBERS },
    } as const
    if (this.#random.chance(0.45)) {
      const [kind, fields] = this.#random.pick(Object.entries(reads) as [[string, (typeof reads)['search']]])
      const method = this.#random.chance(0.9) ? 'GET' : this.#random.pick(['LIST', 'SCAN', 'HEAD'])
      const query = this.#query(fields)
      if (kind !== 'watch') return { method, path: `${kind}/${name}${query}` }
      if (this.#random.chance(0.5)) {
        const cursor = this.#random.chance(0.5) ? `&cursor=${this.#random.pick(CURSORS)}` : ''
        const headers = this.#random.chance(0.4) ? this.#eventStream() : {}
        return { method: 'GET', path: `${kind}/${name}?stream=true${cursor}`, headers }
      }
      const path = `${kind}/${name}${query.includes('wait=') ? query : '?wait=0'}`
      return this.#random.chance(0.7) ? { method, path } : { method, path, headers: this.#eventStream() }
    }
    const kinds = [
      'transaction',
      'transaction',
      'copy',
      'move',
      'import',
      'data',
      'metadata',
      'undelete',
      'destroy',
    ] as const
    const kind = this.#random.pick(kinds)
    const method = this.#random.chance(0.9) ? (this.#random.chance(0.2) ? 'PATCH' : 'POST') : 'DELETE'
    const path = kind === 'transaction' && this.#random.chance(0.9) ? kind : `${kind}/${name}`
    return method === 'DELETE' ? { method, path } : { method, path, body: this.#body(kind) }
  }
}

/** Everything that is there, as text. */
async function stateOf(world: CoreWorld): Promise<string> {
  const [exported, scanned] = [
    await world.ask('GET', 'secret/export'),
    await world.ask('SCAN', 'secret/detailed-metadata'),
  ]
  assert.deepEqual([exported.status, exported.body.data['next'], scanned.status], [200, null, 200])
  return JSON.stringify([exported.body.data, scanned.body.data])
}

/** A few secrets, and nothing else. */
async function reset(world: CoreWorld): Promise<string> {
  const { data } = await expect(world, 200, 'SCAN', 'secret/metadata')
  for (const name of (data['keys'] ?? []) as string[]) {
    const path = name.split('/').map(encodeURIComponent).join('/')
    await expect(world, 204, 'DELETE', `secret/metadata/${path}`)
  }
  const secrets = Object.fromEntries(['a', 'b', 'a/b', 'd/e/f'].map((name) => [name, { data: { x: 0, name } }]))
  await expect(world, 200, 'POST', 'secret/import', { secrets })
  await expect(world, 200, 'PATCH', 'secret/data/a', { data: { y: 2 } })
  await expect(world, 204, 'DELETE', 'secret/data/b')
  return stateOf(world)
}

test(`${REQUESTS} invalid requests cause no internal error, and refused ones change nothing`, async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const world = await openKv(t)
  const port = await listenTo(t, world)
  const random = new Random(SEED)
  const fuzzer = new Fuzzer(random)
  let state = await reset(world)
  const counts: Record<string, number> = {}
  for (let at = 0; at < REQUESTS; at++) {
    const request = fuzzer.next()
    const { body, method, path } = request
    const patch = method === 'PATCH' ? { 'Content-Type': 'application/merge-patch+json' } : {}
    const headers = { 'X-Vault-Token': world.rootToken, ...patch }
    const sent = { method, path: `/v1/secret/${path}`, headers, ...(body !== undefined && { body }) }
    const isWatch = method === 'GET' && path.startsWith('watch/')
    const commits = world.store.commitCounts.done
    const answer: Begun = isWatch ? await begun(port, request, world.rootToken) : await send(port, sent)
    const where = `OUTPOST_SEED=${SEED}, ${at}: ${method} ${path.slice(0, 200)} ${body?.slice(0, 500) ?? ''}: ${answer.body.slice(0, 300)}`
    assert.ok(answer.status < 500, `${answer.status}: ${where}`)
    if (answer.body !== '') JSON.parse(answer.body)
    const told = answer.type !== undefined && answer.type !== 'application/json' ? ` ${answer.type}` : ''
    const kind = `${path.split(/[/?]/)[0]}${told} ${Math.floor(answer.status / 100)}xx`
    counts[kind] = (counts[kind] ?? 0) + 1
    // What has committed nothing has changed nothing that is stored; after some of those, and before each reset, all is
    // read nevertheless.
    const isStored = world.store.commitCounts.done !== commits
    const isRead = isStored || at % 8 === 0
    const after = isRead ? await stateOf(world) : state
    if (answer.status >= 400 || body === undefined) {
      if (method !== 'DELETE') assert.equal(after, state, `it has changed something: ${where}`)
    }
    state = after
    if (after.length > 200_000 || random.chance(0.02)) {
      if (!isRead) assert.equal(await stateOf(world), state, `something since the last look has changed it: ${where}`)
      state = await reset(world)
    }
  }
  assert.equal(await stateOf(world), state)
  assert.deepEqual(
    world.lines.filter(({ level }) => level === 'error'),
    [],
  )
  t.diagnostic(JSON.stringify(counts))
})
