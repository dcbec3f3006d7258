/**
 * One-time codes: cost of verifying one, drawing a QR code, and reading a secret with a code; and the effect of a flood of
 * wrong codes of one entity on others. A different implementation than the server's generates the codes.
 */
import { TOTP, URI } from 'otpauth'
import qrcode from 'qrcode'
import { matchCode } from '../src/engines/totp/code-check.ts'
import { codeAt, type CodeForm, newKey, otpauthUrl, stepAt } from '../src/engines/totp/codes.ts'
import { qrPng } from '../src/engines/totp/qr.ts'
import { CoreServer } from './support/core.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { type Load, load, type Request } from './support/load.ts'
import { inTurn } from './support/measure.ts'

const FORM: CodeForm = { algorithm: 'SHA1', digits: 6, periodSeconds: 30 }
/** Long enough that the codes of a run stay valid; with the skew, three are valid at a time. */
const PERIOD_SECONDS = 3600
const CODES_AT_ONCE = [-1, 0, 1]

export async function totp(options: Options): Promise<Row[]> {
  return [...(await checks(options)), ...(await pictures(options)), ...(await reads(options))]
}

async function checks({ quick, rounds }: Options): Promise<Row[]> {
  const key = newKey(20)
  const other = new TOTP({ secret: URI.parse(otpauthUrl({ issuer: 'a', account: 'b', key, form: FORM })).secret })
  const count = quick ? 500 : 10_000
  const [ours, peer]: [number[], number[]] = [[], []]
  const time = (runs: number[], check: (code: string, timeMs: number) => boolean) => async () => {
    const codes = Array.from({ length: count }, (_, each) => codeAt(key, FORM, stepAt(FORM, each * 30_000)))
    const before = process.cpuUsage()
    for (const [each, code] of codes.entries()) {
      if (!check(code, each * 30_000)) throw new WrongContent(`the code ${code} was not accepted`)
    }
    const { system, user } = process.cpuUsage(before)
    runs.push((system + user) / count)
  }
  await inTurn(rounds, [
    time(ours, (code, timeMs) => matchCode(key, FORM, code, timeMs, 1) !== undefined),
    time(peer, (token, timestamp) => other.validate({ token, timestamp, window: 1 }) !== null),
  ])
  return [{ figure: 'code checked, skew 1', unit: 'µs CPU', ours, peer: { name: 'µs, otpauth', runs: peer } }]
}

/** Event loop time of a QR code, which a separate thread draws; the peer draws on the event loop. */
async function pictures({ quick, rounds }: Options): Promise<Row[]> {
  const rows: Row[] = []
  const count = quick ? 3 : 20
  for (const pixels of [200, 1024]) {
    const [ours, peer, whole]: [number[], number[], number[]] = [[], [], []]
    const time = (runs: number[], draw: (url: string) => Promise<unknown>, wall?: number[]) => async () => {
      const url = otpauthUrl({
        issuer: 'Example',
        account: '4746fb81-028c-cd4e-026b-7dd18fe4c2f4',
        key: newKey(20),
        form: FORM,
      })
      const before = performance.eventLoopUtilization()
      const beganMs = performance.now()
      for (let each = 0; each < count; each++) await draw(url)
      runs.push(performance.eventLoopUtilization(before).active / count)
      wall?.push((performance.now() - beganMs) / count)
    }
    await qrPng('otpauth://totp/first', pixels)
    await inTurn(rounds, [
      time(ours, (url) => qrPng(url, pixels), whole),
      time(peer, (url) => qrcode.toBuffer(url, { width: pixels })),
    ])
    const figure = `QR code of ${pixels} pixels, time of the event loop`
    rows.push({ figure, unit: 'ms', ours, peer: { name: 'ms, drawn on the event loop', runs: peer } })
    rows.push({ figure: `QR code of ${pixels} pixels, request to response`, unit: 'ms', ours: whole })
  }
  return rows
}

/** Codes are of its application. */
interface Person {
  readonly token: string
  readonly codes: readonly string[]
}

/** A server with entities that have a secret of one method each, and their reads. */
class Readers {
  readonly core = new CoreServer()
  readonly #people: Person[] = []
  /** Unused codes. */
  readonly #left: { readonly token: string; readonly code: string }[] = []
  #next = 0

  async begin(): Promise<void> {
    await this.core.start()
    await this.core.initialise()
    const policy =
      'path "secret/data/open" { capabilities = ["read"] }\n' +
      'path "secret/data/coded" { capabilities = ["read"] mfa_methods = ["m"] }'
    for (const [path, body] of [
      ['secret/data/open', { data: { a: 'b' } }],
      ['secret/data/coded', { data: { a: 'b' } }],
      ['sys/mfa/method/totp/m', { issuer: 'Example', qr_size: 0, period: PERIOD_SECONDS }],
      ['sys/policies/acl/p', { policy }],
      ['auth/token/roles/r', { allowed_entity_aliases: ['*'], allowed_policies: ['p'] }],
    ] as const) {
      const { body: text, status } = await this.core.ask('POST', path, body)
      if (status >= 300) throw new WrongContent(`${path}: ${text}`)
    }
  }

  /** Entities with a secret each, eight at a time. */
  async enrol(count: number): Promise<void> {
    let left = count
    const one = async () => {
      while (left-- > 0) {
        const person = await this.person(`person-${this.#people.length}-${left}`)
        this.#people.push(person)
        this.#left.push(...person.codes.map((code) => ({ token: person.token, code })))
      }
    }
    await Promise.all(Array.from({ length: 8 }, one))
  }

  async person(name: string): Promise<Person> {
    const made = await this.core.ask('POST', 'auth/token/create/r', { entity_alias: name, policies: ['p'] })
    const { auth } = JSON.parse(made.body) as { auth: { client_token: string; entity_id: string } }
    const path = 'sys/mfa/method/totp/m/admin-generate'
    const { body } = await this.core.ask('POST', path, { entity_id: auth.entity_id })
    const { data } = JSON.parse(body) as { data: { url: string } }
    const application = URI.parse(data.url)
    if (!(application instanceof TOTP)) throw new WrongContent('no URL of TOTP')
    const at = (period: number) => application.generate({ timestamp: Date.now() + period * PERIOD_SECONDS * 1000 })
    return { token: auth.client_token, codes: CODES_AT_ONCE.map(at) }
  }

  /** Sends `count` reads, each with a code. */
  coded(count: number): Promise<Load> {
    let left = count
    return this.#load(() => {
      const next = left-- > 0 ? this.#left.pop() : undefined
      return next && request(next.token, 'secret/data/coded', [200], next.code)
    })
  }

  /** The same without codes. */
  open(count: number): Promise<Load> {
    let left = count
    return this.#load(() => {
      const person = this.#people[this.#next++ % this.#people.length]
      return person && left-- > 0 ? request(person.token, 'secret/data/open', [200]) : undefined
    })
  }

  /** Sends wrong codes of one entity as fast as they are refused, until `work` is done. */
  async beside<T>({ token }: Person, work: () => Promise<T>): Promise<T> {
    let isDone = false
    const wrong = () => (isDone ? undefined : request(token, 'secret/data/coded', [403, 429], '000000'))
    const flood = this.#load(wrong, 4)
    try {
      return await work()
    } finally {
      isDone = true
      await flood
    }
  }

  #load(next: () => Request | undefined, connections = 16): Promise<Load> {
    return load({ port: this.core.port, pid: this.core.pid, connections, durationMs: 60_000, next })
  }
}

function request(token: string, path: string, wanted: readonly number[], code?: string): Request {
  const header = `X-Vault-Token: ${token}\r\n${code === undefined ? '' : `X-Vault-MFA: m:${code}\r\n`}`
  const fault = (status: number, body: Buffer) =>
    wanted.includes(status) ? undefined : `status ${status}: ${body.toString()}`
  return { path: `/v1/${path}`, header, fault }
}

async function reads({ quick, rounds }: Options): Promise<Row[]> {
  const readers = new Readers()
  const people = quick ? 20 : 400
  const count = people * CODES_AT_ONCE.length
  const [coded, open, flooded]: [Load[], Load[], Load[]] = [[], [], []]
  try {
    await readers.begin()
    const victim = await readers.person('victim')
    await readers.enrol(people)
    await readers.coded(count / 2)
    await inTurn(Math.min(rounds, 3), [
      async () => {
        await readers.enrol(people)
        coded.push(await readers.coded(count / 2))
      },
      async () => void open.push(await readers.open(count / 2)),
      async () => {
        const work = () => readers.coded(count / 2)
        await readers.enrol(people / 2)
        flooded.push(await readers.beside(victim, work))
      },
    ])
  } finally {
    await readers.core.remove()
  }
  return [
    {
      figure: 'secret read with a code, 16 in flight',
      unit: 'req/s',
      ours: coded.map(({ requestsPerSecond }) => requestsPerSecond),
      peer: { name: 'req/s without', runs: open.map(({ requestsPerSecond }) => requestsPerSecond) },
      cpu: {
        unit: 'ms/req',
        ours: coded.map(({ cpuMsPerRequest }) => cpuMsPerRequest),
        peer: open.map(({ cpuMsPerRequest }) => cpuMsPerRequest),
      },
    },
    {
      figure: 'the same beside a flood of wrong codes of one entity, p50',
      unit: 'ms',
      ours: flooded.map(({ p50Ms }) => p50Ms),
      peer: { name: 'ms without', runs: coded.map(({ p50Ms }) => p50Ms) },
    },
  ]
}

if (import.meta.main) await alone(totp)
