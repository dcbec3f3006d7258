/**
 * Nonsense at the front door, from a seed: requests that are well formed and cut anywhere must be answered exactly, what
 * is not must end in a refusal or a closed connection; never in a 5xx, a line at `error`, or a connection that hangs.
 */
import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test, type TestContext } from 'node:test'
import { anyPath, type EchoedRequest } from '../helpers/fallback-stub.ts'
import { type Edge, startEdge } from '../helpers/edge.ts'
import { Random } from '../helpers/frames.ts'
import { answersIn, listen } from '../helpers/raw-http.ts'
import { eventually } from '../helpers/eventually.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? 20)
const ROUNDS = Number(process.env['OUTPOST_FUZZ_ROUNDS'] ?? 5)
const AT_ONCE = 32

const OPERATIONS: Readonly<Record<string, string>> = {
  LIST: 'list',
  SCAN: 'scan',
  GET: 'read',
  POST: 'write',
  PUT: 'write',
  PATCH: 'patch',
  DELETE: 'delete',
}
const VERBS = ['LIST', 'LIST', 'LIST', 'SCAN', ...Object.keys(OPERATIONS)]
const PIECES = [
  'a',
  'LIST',
  'SCAN',
  '%20',
  '%2F',
  '%c3%bc',
  '..',
  '.',
  '//',
  '%25',
  '+',
  '%00',
  'x'.repeat(300),
  '~',
  ':',
]
const LINES = [
  'Connection: keep-alive',
  'X-Vault-Token: LIST /v1/x HTTP/1.1',
  'X-Vault-Namespace: SCAN',
  'Accept-Encoding: gzip',
  'Content-Type: LIST',
  `X: ${'LIST '.repeat(500)}`,
  'Authorization: Bearer LIST',
  'Referer: LIST',
]
const ABSURD = [
  'Connection: close, upgrade, keep-alive',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'Expect: 100-continue',
  'Expect: LIST',
  'Transfer-Encoding: chunked, chunked',
  'Transfer-Encoding: LIST',
  'Content-Length: 99999999999999999999',
  'Content-Length: 7',
  'Host: y',
  ': LIST',
  'LIST',
  '\0: 1',
  `${'y'.repeat(5000)}: 1`,
  'Content-Encoding: gzip',
  'X-Vault-Token: \xff\xfe',
]

interface Asked {
  readonly text: string
  readonly operation: string
  readonly path: string
  readonly body: string
}

class Nonsense {
  readonly #random: Random

  constructor(seed: number) {
    this.#random = new Random(seed)
  }

  below(limit: number): number {
    return this.#random.between(0, limit - 1)
  }

  one<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T
  }

  some<T>(most: number, make: () => T): T[] {
    return Array.from({ length: this.below(most + 1) }, make)
  }

  /** A request that must be answered, and what its answer must say. */
  request(isLast: boolean): Asked {
    const verb = this.one(VERBS)
    const path = `s/${this.some(5, () => this.one(PIECES)).join('')}`
    const body =
      verb === 'GET' || verb === 'DELETE'
        ? ''
        : this.one(['', 'LIST /v1/t HTTP/1.1\r\n\r\n', 'x'.repeat(this.below(40_000))])
    const lines = ['Host: x', ...this.some(3, () => this.one(LINES)), ...(isLast ? ['Connection: close'] : [])]
    const isChunked = body !== '' && this.below(2) === 0
    if (isChunked) lines.push('Transfer-Encoding: chunked')
    else if (body !== '') lines.push(`Content-Length: ${body.length}`)
    const sent = isChunked ? `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n` : body
    const text = `${verb} /v1/${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${sent}`
    return { text, operation: OPERATIONS[verb] ?? '', path: decodeURIComponent(path), body }
  }

  /** What may come out of a request when bytes of it are lost, doubled, changed, or thrown in. */
  spoilt(text: string): Buffer {
    let bytes = Buffer.from(text, 'latin1')
    for (let changes = this.below(6); changes >= 0; changes--) {
      const at = this.below(Math.min(bytes.length, this.one([8, 60, 400, bytes.length])) + 1)
      const lost = this.one([0, 0, 1, 1, 3, 50])
      const more = this.one([
        Buffer.alloc(0),
        Buffer.from([this.below(256)]),
        Buffer.from(
          this.one([
            'LIST',
            'SCAN ',
            '\r\n',
            '\r\n\r\n',
            '\n',
            ' ',
            '%',
            '%ff',
            'LIST /v1/z HTTP/1.1\r\nHost: x\r\n\r\n',
          ]),
        ),
        Buffer.from(`\r\n${this.one(ABSURD)}`, 'latin1'),
        bytes.subarray(at, at + this.below(30)),
      ])
      bytes = Buffer.concat([bytes.subarray(0, at), more, bytes.subarray(at + lost)])
    }
    return bytes
  }

  /** The same bytes in up to six packets, often cut within a verb. */
  cut(bytes: Buffer): Buffer[] {
    const verbs = [...bytes.toString('latin1').matchAll(/(LIST|SCAN) \//g)].map(({ index }) => index)
    const place = () => (verbs.length > 0 && this.below(2) === 0 ? this.one(verbs) : this.below(bytes.length + 1))
    const places = this.some(5, () => Math.min(place() + this.below(5), bytes.length)).sort((a, b) => a - b)
    return [0, ...places].map((from, index) => bytes.subarray(from, places[index]))
  }
}

async function send(port: number, packets: readonly Buffer[], pauseMs: number) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  const heard = listen(socket, { patienceMs: 60_000 })
  for (const packet of packets) {
    if (!socket.writable) break
    socket.write(packet)
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
  }
  return { socket, heard }
}

/** What was begun and never ends is ended soon. */
const SHORT = { headTimeoutMs: 1000, requestTimeoutMs: 3000, idleTimeoutMs: 500 }
/** What ends by itself is not ended before, however busy the machine is. */
const LONG = { headTimeoutMs: 50_000, requestTimeoutMs: 50_000, idleTimeoutMs: 50_000 }

async function start(t: TestContext, limits: typeof SHORT): Promise<Edge> {
  return startEdge(t, { fallback: anyPath(), limits })
}

async function unharmed({ lines, listener }: Edge, seed: number): Promise<void> {
  await eventually(
    () => listener.connections.open === 0 && listener.activeExchanges === 0,
    `no connection is left, OUTPOST_SEED=${seed}`,
  )
  const bad = lines.filter(({ level, fields }) => level === 'error' || Number(fields['status'] ?? 0) >= 500)
  assert.deepEqual(bad, [], `OUTPOST_SEED=${seed}`)
  lines.length = 0
}

test('valid requests in random order and split anywhere are answered one by one', async (t) => {
  const edge = await start(t, LONG)
  for (let round = 0; round < ROUNDS; round++) {
    const connections = Array.from({ length: AT_ONCE }, async (_, index) => {
      const seed = SEED + round * AT_ONCE + index
      const nonsense = new Nonsense(seed)
      const length = nonsense.below(20)
      const asked = Array.from({ length: length + 1 }, (_each, at) => nonsense.request(at === length))
      const packets = nonsense.cut(Buffer.from(asked.map(({ text }) => text).join('')))
      const { heard } = await send(edge.port, packets, nonsense.below(8))
      const told = answersIn((await heard).bytes).map(({ status, body }) => {
        assert.equal(status, 200, `OUTPOST_SEED=${seed}: ${body.toString()}`)
        const { operation, path, body: got } = JSON.parse(body.toString()) as EchoedRequest
        return { operation, path, body: got ?? '' }
      })
      const expected = asked.map(({ operation, path, body }) => ({ operation, path, body }))
      assert.deepEqual(told, expected, `OUTPOST_SEED=${seed}`)
    })
    await Promise.all(connections)
  }
  await unharmed(edge, SEED)
})

test('malformed requests cause no 5xx, no hang and no logged error', async (t) => {
  const edge = await start(t, SHORT)
  // Most of their time is waiting for the end of a head that does not come.
  const atOnce = 5 * AT_ONCE
  for (let first = 0; first < ROUNDS * AT_ONCE; first += atOnce) {
    const connections = Array.from({ length: atOnce }, async (_, index) => {
      const seed = SEED + 1_000_000 + first + index
      const nonsense = new Nonsense(seed)
      const packets = nonsense.cut(nonsense.spoilt(nonsense.some(5, () => nonsense.request(false).text).join('')))
      const { socket, heard } = await send(edge.port, packets, nonsense.below(8))
      const ending = nonsense.below(4)
      if (ending === 0) socket.resetAndDestroy()
      else if (ending === 1) socket.end()
      const { text, end } = await heard
      assert.doesNotMatch(text, /HTTP\/1\.1 5\d\d /, `OUTPOST_SEED=${seed}`)
      assert.notEqual(end, 'open', `OUTPOST_SEED=${seed}: ${text.slice(-200)}`)
    })
    await Promise.all(connections)
  }
  await unharmed(edge, SEED)
})
