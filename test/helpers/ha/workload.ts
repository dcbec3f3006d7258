/**
 * Concurrent clients that use a secrets core through all of its servers and record what they did: registers and counters
 * with check-and-set, lists to which transactions append, tokens with a number of uses, and wrapping tokens.
 *
 * An answer decides the outcome of an operation only if its status and text are those that the core gives to this operation.
 * Every other answer, a timeout and a broken connection mean that the outcome is unknown.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../frames.ts'
import { Random as SeededRandom } from '../frames.ts'
import { violationsOf, type Violation } from '../history/check-history.ts'
import { counter, type CounterInput, type CounterResult } from '../history/counter.ts'
import { limitedUses, type UseInput, type UseResult } from '../history/limited-uses.ts'
import { appended, type Lists, lists, type ListsInput, type ListsResult } from '../history/lists.ts'
import { History } from '../history/operation.ts'
import { register, type RegisterInput, type RegisterResult } from '../history/register.ts'
import { type AskedServer, type ClientRequest, HaClient, memberOf, type Outcome } from './ha-client.ts'

export interface WorkloadOptions {
  readonly servers: readonly [AskedServer, ...AskedServer[]]
  readonly token: string
  readonly seed: number
  /** Before all names, so that several workloads can use one core. */
  readonly prefix: string
  readonly clients: number
  readonly timeoutMs: number
  /** Longest pause of a client between two operations. */
  readonly pauseMsMax: number
}

const REGISTERS = ['r0', 'r1', 'r2', 'r3'] as const
const COUNTERS = ['c0', 'c1'] as const
const LIST_NAMES = ['a', 'b', 'c'] as const
/** Elements of a group of lists. Then the clients use the next group. */
const ELEMENTS_MAX = 40
const TOKENS_AT_ONCE = 3
const USES_MAX = 8
/** Attempts to use something that is used up. */
const DENIALS_MAX = 3
const POLICY = 'ha-uses'

interface VersionedValue {
  readonly version: number
  readonly value: string
}

/** Something with a number of uses. */
interface Limited {
  readonly object: string
  readonly token: string
  readonly limit: number
  denials: number
}

type ReadOutcome = VersionedValue | undefined

export class Workload {
  readonly registers = new History<RegisterInput, RegisterResult>()
  readonly counters = new History<CounterInput, CounterResult>()
  readonly lists = new History<ListsInput, ListsResult>()
  readonly uses = new History<UseInput, UseResult>()
  /** Answers by status, and failed connections. */
  readonly answers = new Map<string, number>()
  /** Answers that no operation of the workload should get, with their text. */
  readonly unexpected: string[] = []
  acknowledged = 0
  readonly #options: WorkloadOptions
  readonly #tokens: Limited[] = []
  readonly #wrapped: Limited[] = []
  readonly #all: Limited[] = []
  #appended = 0
  #names = 0
  #isStopped = false
  #running: Promise<unknown> = Promise.resolve()

  constructor(options: WorkloadOptions) {
    this.#options = options
  }

  get servers(): readonly [AskedServer, ...AskedServer[]] {
    return this.#options.servers
  }

  /** Writes what the tokens of the workload read. Rejects unless the core does so. */
  async prepare(): Promise<void> {
    const client = new WorkloadClient(this, this.#options, -1)
    const policy = 'path "secret/data/ha-uses" { capabilities = ["read"] }'
    await client.require({ method: 'PUT', path: `sys/policies/acl/${POLICY}`, body: { policy } })
    await client.require({ method: 'PUT', path: 'secret/data/ha-uses', body: { data: { value: 'used' } } })
    client.close()
  }

  start(): void {
    const clients = Array.from(
      { length: this.#options.clients },
      (_, at) => new WorkloadClient(this, this.#options, at),
    )
    this.#running = Promise.all(clients.map((client) => client.run(() => this.#isStopped)))
  }

  /** Ends the clients, then reads everything through each server, and uses up every token. */
  async finish(): Promise<void> {
    this.#isStopped = true
    await this.#running
    await Promise.all(
      this.servers.map(async (server, at) => {
        const client = new WorkloadClient(this, this.#options, this.#options.clients + at)
        for (const name of REGISTERS) await client.readRegister(server, name)
        for (const name of COUNTERS) await client.readCounter(server, name)
        for (let group = 0; group <= this.group; group++) {
          for (const name of LIST_NAMES) await client.readList(server, group, name)
        }
        for (const limited of this.#all) {
          for (let count = 0; count <= limited.limit && limited.denials < DENIALS_MAX + at; count++) {
            await client.use(server, limited)
          }
        }
        client.close()
      }),
    )
  }

  violations(): readonly Violation[] {
    return [
      ...violationsOf(register, this.registers.finish()),
      ...violationsOf(counter, this.counters.finish()),
      ...violationsOf(lists, this.lists.finish()),
      ...violationsOf(limitedUses, this.uses.finish()),
    ]
  }

  get group(): number {
    return Math.floor(this.#appended / ELEMENTS_MAX)
  }

  countAppended(): void {
    this.#appended++
  }

  uniqueName(kind: string): string {
    return `${this.#options.prefix}${kind}${this.#names++}`
  }

  add(kind: 'token' | 'wrapped', limited: Limited): void {
    this.#all.push(limited)
    ;(kind === 'token' ? this.#tokens : this.#wrapped).push(limited)
  }

  /** Something that has probably uses left. */
  limited(kind: 'token' | 'wrapped', random: Random): Limited | undefined {
    const list = kind === 'token' ? this.#tokens : this.#wrapped
    const usable = list.filter(({ denials }) => denials < DENIALS_MAX)
    list.splice(0, list.length, ...usable)
    return usable.length < TOKENS_AT_ONCE ? undefined : usable[random.between(0, usable.length - 1)]
  }

  count(outcome: Outcome): void {
    const name =
      outcome.kind === 'answer' ? String(outcome.status) : outcome.kind === 'unknown' ? outcome.note : 'refused'
    this.answers.set(name, (this.answers.get(name) ?? 0) + 1)
  }
}

function isMismatch(outcome: Outcome): boolean {
  return outcome.kind === 'answer' && outcome.status === 400 && outcome.body.includes('check-and-set parameter')
}

/** One client, with the random numbers of its own. */
class WorkloadClient {
  readonly #workload: Workload
  readonly #options: WorkloadOptions
  readonly #http: HaClient
  readonly #random: SeededRandom
  readonly #name: string
  /** Versions of registers as last seen by this client. */
  readonly #seen = new Map<string, number>()
  #values = 0

  constructor(workload: Workload, options: WorkloadOptions, at: number) {
    this.#workload = workload
    this.#options = options
    this.#http = new HaClient(options.token, options.timeoutMs)
    this.#random = new SeededRandom(options.seed * 1000 + at + 1)
    this.#name = `c${String(at).padStart(2, '0')}`
  }

  async run(isStopped: () => boolean): Promise<void> {
    while (!isStopped()) {
      await this.#step()
      await sleep(this.#random.next() * this.#options.pauseMsMax)
    }
    this.close()
  }

  close(): void {
    this.#http.close()
  }

  async #step(): Promise<void> {
    const random = this.#random
    const server = random.pick(this.#workload.servers)
    const dice = random.between(0, 99)
    if (dice < 22) await this.readRegister(server, random.pick(REGISTERS))
    else if (dice < 40) await this.#writeRegister(server, random.pick(REGISTERS))
    else if (dice < 45) await this.readCounter(server, random.pick(COUNTERS))
    else if (dice < 57) await this.#increment(server, random.pick(COUNTERS))
    else if (dice < 62) await this.readList(server, this.#workload.group, random.pick(LIST_NAMES))
    else if (dice < 75) await this.#append(server)
    else if (dice < 80) await this.#readLists(server)
    else await this.#useLimited(server, dice < 90 ? 'token' : 'wrapped')
  }

  async #send(server: AskedServer, request: ClientRequest): Promise<Outcome> {
    const outcome = await this.#http.send(server, request)
    this.#workload.count(outcome)
    return outcome
  }

  /** Rejects unless the request succeeds at the first server. */
  async require(request: ClientRequest): Promise<void> {
    const outcome = await this.#send(this.#workload.servers[0], request)
    if (outcome.kind === 'answer' && outcome.status < 300) return
    throw new Error(`${request.method} ${request.path}: ${JSON.stringify(outcome)}`)
  }

  /** Why an outcome is unknown. A status that is neither a result nor an outage is reported. */
  #note(outcome: Outcome, { method, path }: ClientRequest): string {
    if (outcome.kind === 'not sent') return 'not sent'
    if (outcome.kind === 'unknown') return outcome.note
    const text = `${outcome.status} ${outcome.body.trim().slice(0, 200)}`
    const isOutage = [429, 473, 502, 503, 504, 507].includes(outcome.status)
    if (!isOutage) this.#workload.unexpected.push(`${method} ${path}: ${text}`)
    return text
  }

  #dataPath(object: string): string {
    return `secret/data/${this.#options.prefix}${object}`
  }

  /** Version 0 for a key that does not exist; undefined if the answer says nothing. */
  #valueIn(outcome: Outcome): ReadOutcome {
    if (outcome.kind !== 'answer') return undefined
    if (outcome.status === 404 && outcome.body.replaceAll(/\s/g, '').includes('"errors":[]'))
      return { version: 0, value: '' }
    if (outcome.status !== 200) return undefined
    const version = memberOf(outcome.body, 'data', 'metadata', 'version')
    const value = memberOf(outcome.body, 'data', 'data', 'value')
    return typeof version === 'number' && typeof value === 'string' ? { version, value } : undefined
  }

  /** Undefined if the outcome is unknown. */
  #writtenVersion(outcome: Outcome): number | undefined {
    if (outcome.kind !== 'answer' || outcome.status !== 200) return undefined
    const version = memberOf(outcome.body, 'data', 'version')
    return typeof version === 'number' ? version : undefined
  }

  async #read(server: AskedServer, object: string): Promise<ReadOutcome> {
    const request = { method: 'GET', path: this.#dataPath(object) }
    const outcome = await this.#send(server, request)
    const found = this.#valueIn(outcome)
    if (!found) this.#note(outcome, request)
    else this.#workload.acknowledged++
    return found
  }

  async readRegister(server: AskedServer, object: string): Promise<void> {
    const input = { kind: 'read' } as const
    const open = this.#workload.registers.begin({ client: this.#name, server: server.name, object, input })
    const found = await this.#read(server, object)
    if (!found) return open.hadNoEffect()
    this.#seen.set(object, found.version)
    open.completed({ kind: 'value', ...found })
  }

  async #writeRegister(server: AskedServer, object: string): Promise<void> {
    const value = `${this.#name}-${this.#values++}`
    const version = this.#random.chance(0.7) ? (this.#seen.get(object) ?? 0) : undefined
    const input =
      version === undefined ? ({ kind: 'write', value } as const) : ({ kind: 'cas', version, value } as const)
    const open = this.#workload.registers.begin({ client: this.#name, server: server.name, object, input })
    const options = version === undefined ? {} : { options: { cas: version } }
    const request = { method: 'PUT', path: this.#dataPath(object), body: { data: { value }, ...options } }
    const outcome = await this.#send(server, request)
    const written = this.#writtenVersion(outcome)
    if (written !== undefined) {
      this.#seen.set(object, written)
      this.#workload.acknowledged++
      open.completed({ kind: 'written', version: written })
    } else if (isMismatch(outcome) && version !== undefined) open.completed({ kind: 'mismatch' })
    else if (outcome.kind === 'not sent') open.hadNoEffect()
    else open.unknown(this.#note(outcome, request))
  }

  /** Returns what was read, for an increment. */
  async readCounter(server: AskedServer, object: string): Promise<ReadOutcome> {
    const input = { kind: 'read' } as const
    const open = this.#workload.counters.begin({ client: this.#name, server: server.name, object, input })
    const found = await this.#read(server, object)
    if (found) open.completed({ value: Number(found.value) })
    else open.hadNoEffect()
    return found
  }

  async #increment(server: AskedServer, object: string): Promise<void> {
    const before = await this.readCounter(server, object)
    if (!before) return
    const input = { kind: 'add' } as const
    const value = Number(before.value) + 1
    const body = { data: { value: String(value) }, options: { cas: before.version } }
    const request = { method: 'PUT', path: this.#dataPath(object), body }
    const target = this.#random.pick(this.#workload.servers)
    const open = this.#workload.counters.begin({ client: this.#name, server: target.name, object, input })
    const outcome = await this.#send(target, request)
    if (this.#writtenVersion(outcome) !== undefined) {
      this.#workload.acknowledged++
      open.completed({ value })
    } else if (isMismatch(outcome) || outcome.kind === 'not sent') open.hadNoEffect()
    else open.unknown(this.#note(outcome, request))
  }

  async readList(server: AskedServer, group: number, name: string): Promise<ReadOutcome> {
    const input = { kind: 'read', names: [name] } as const
    const object = `g${group}`
    const open = this.#workload.lists.begin({ client: this.#name, server: server.name, object, input })
    const found = await this.#read(server, `${object}/${name}`)
    if (found) open.completed({ kind: 'lists', lists: { [name]: found.value } })
    else open.hadNoEffect()
    return found
  }

  /** Reads some lists, one after another. */
  async #chosenLists(server: AskedServer, group: number): Promise<ReadonlyMap<string, VersionedValue> | undefined> {
    const chosen = LIST_NAMES.filter(() => this.#random.chance(0.6))
    const found = new Map<string, VersionedValue>()
    for (const name of chosen) {
      const list = await this.readList(server, group, name)
      if (!list) return undefined
      found.set(name, list)
    }
    return found.size === 0 ? undefined : found
  }

  async #append(server: AskedServer): Promise<void> {
    const { group } = this.#workload
    const before = await this.#chosenLists(server, group)
    if (!before) return
    const element = `${this.#name}-${this.#values++}`
    const to: Lists = Object.fromEntries([...before].map(([name, { value }]) => [name, value]))
    const operations = [...before].map(([name, { value, version }]) => {
      const path = `${this.#options.prefix}g${group}/${name}`
      return { op: 'put', path, cas: version, data: { value: appended(value, element) } }
    })
    const input = { kind: 'append', element, to } as const
    const target = this.#random.pick(this.#workload.servers)
    const invocation = { client: this.#name, server: target.name, object: `g${group}`, input }
    const open = this.#workload.lists.begin(invocation)
    const request = { method: 'POST', path: 'secret/transaction', body: { operations } }
    const outcome = await this.#send(target, request)
    if (outcome.kind === 'answer' && outcome.status === 200) {
      this.#workload.acknowledged++
      this.#workload.countAppended()
      open.completed({ kind: 'appended' })
    } else if (isMismatch(outcome)) open.completed({ kind: 'mismatch' })
    else if (outcome.kind === 'not sent') open.hadNoEffect()
    else open.unknown(this.#note(outcome, request))
  }

  /** Reads several lists, then checks with a transaction that all of them are unchanged at one moment. */
  async #readLists(server: AskedServer): Promise<void> {
    const { group } = this.#workload
    const found = await this.#chosenLists(server, group)
    if (!found) return
    const input = { kind: 'read', names: [...found.keys()] } as const
    const target = this.#random.pick(this.#workload.servers)
    const open = this.#workload.lists.begin({ client: this.#name, server: target.name, object: `g${group}`, input })
    const operations = [...found].map(([name, { version }]) => {
      return { op: 'check', path: `${this.#options.prefix}g${group}/${name}`, cas: version }
    })
    const request = { method: 'POST', path: 'secret/transaction', body: { operations } }
    const outcome = await this.#send(target, request)
    if (outcome.kind === 'answer' && outcome.status < 300) {
      const values = Object.fromEntries([...found].map(([name, { value }]) => [name, value]))
      open.completed({ kind: 'lists', lists: values })
      return
    }
    open.hadNoEffect()
    if (!isMismatch(outcome)) this.#note(outcome, request)
  }

  async #useLimited(server: AskedServer, kind: 'token' | 'wrapped'): Promise<void> {
    const limited = this.#workload.limited(kind, this.#random)
    if (limited) await this.use(server, limited)
    else await (kind === 'token' ? this.#makeToken(server) : this.#wrap(server))
  }

  async #makeToken(server: AskedServer): Promise<void> {
    const limit = this.#random.between(1, USES_MAX)
    const body = { policies: [POLICY], no_default_policy: true, num_uses: limit, ttl: '2h', renewable: false }
    const request = { method: 'POST', path: 'auth/token/create', body }
    const outcome = await this.#send(server, request)
    const token = outcome.kind === 'answer' ? memberOf(outcome.body, 'auth', 'client_token') : undefined
    if (typeof token !== 'string') return void this.#note(outcome, request)
    this.#workload.add('token', { object: this.#workload.uniqueName('token'), token, limit, denials: 0 })
  }

  async #wrap(server: AskedServer): Promise<void> {
    const headers = { 'X-Vault-Wrap-TTL': '2h' }
    const request = { method: 'POST', path: 'sys/wrapping/wrap', body: { value: 'wrapped' }, headers }
    const outcome = await this.#send(server, request)
    const token = outcome.kind === 'answer' ? memberOf(outcome.body, 'wrap_info', 'token') : undefined
    if (typeof token !== 'string') return void this.#note(outcome, request)
    this.#workload.add('wrapped', { object: this.#workload.uniqueName('wrapped'), token, limit: 1, denials: 0 })
  }

  async use(server: AskedServer, limited: Limited): Promise<void> {
    const { limit, object, token } = limited
    const isWrapped = object.includes('wrapped')
    const invocation = { client: this.#name, server: server.name, object, input: { limit } }
    const open = this.#workload.uses.begin(invocation)
    const request = isWrapped
      ? { method: 'POST', path: 'sys/wrapping/unwrap', body: { token } }
      : { method: 'GET', path: 'secret/data/ha-uses', token }
    const outcome = await this.#send(server, request)
    const isDenied = outcome.kind === 'answer' && (isWrapped ? outcome.status === 400 : outcome.status === 403)
    if (outcome.kind === 'answer' && outcome.status === 200) {
      this.#workload.acknowledged++
      open.completed('used')
    } else if (isDenied) {
      limited.denials++
      open.completed('denied')
    } else if (outcome.kind === 'not sent') open.hadNoEffect()
    else open.unknown(this.#note(outcome, request))
  }
}
