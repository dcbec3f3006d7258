/**
 * Cost of a second factor: reads with a code, alternating with reads by the same tokens without one; the same when 10,000
 * entities have a secret; the start with and without these secrets. Each code is valid once, so each round uses its own time step.
 * A flood of wrong codes, and rates: `totp.ts`.
 */
import { bytesOfBase32, codeAt, stepAt } from '../src/engines/totp/codes.ts'
import { CoreServer } from './support/core.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { cpuSeconds, inTurn, median } from './support/measure.ts'

const PERIOD_SECONDS = 3600
const FORM = { algorithm: 'SHA1', digits: 6, periodSeconds: PERIOD_SECONDS } as const
/** Number of codes that a method with skew 1 accepts at one time. */
const STEPS = [0, -1, 1]
const IN_FLIGHT = 16
/** A method has three codes for each caller; two of them warm up the server after a start. */
const METHODS = ['warm', 'few', 'again', 'many']
const POLICY = `
path "secret/data/open" { capabilities = ["read"] }
${METHODS.map((name) => `path "secret/data/${name}" { capabilities = ["read"] mfa_methods = ["${name}"] }`).join('\n')}`

interface Caller {
  readonly token: string
  /** By the name of the method. */
  readonly keys: Map<string, Uint8Array>
}

export async function mfa(options: Options): Promise<Row[]> {
  const [callerCount, enrolledCount] = options.quick ? [40, 200] : [500, 10_000]
  const rounds = Math.min(options.rounds, STEPS.length)
  const core = new CoreServer()
  try {
    await core.start()
    await core.initialise()
    const bench = new SecondFactors(core)
    await bench.prepare(callerCount)
    // The first ones are compiled.
    for (let round = 0; round < 4; round++) await bench.read('open')
    for (const step of STEPS) await bench.read('warm', step)
    const few = await compared(bench, rounds, 'few')
    const fewStarts = await starts(core, rounds)
    await bench.enrolOthers(enrolledCount - callerCount)
    for (let round = 0; round < 4; round++) await bench.read('open')
    for (const step of STEPS) await bench.read('again', step)
    const many = await compared(bench, rounds, 'many')
    const manyStarts = await starts(core, rounds)
    return [
      rowOf(`read with a code, ${IN_FLIGHT} in flight, ${callerCount} secrets`, few),
      rowOf(`the same with ${enrolledCount} secrets`, many),
      {
        figure: `start to active, ${enrolledCount} secrets`,
        unit: 'ms CPU',
        ours: manyStarts,
        peer: { name: `with ${callerCount}`, runs: fewStarts },
      },
    ]
  } finally {
    await core.remove()
  }
}

function rowOf(figure: string, { coded, plain }: { coded: number[]; plain: number[] }): Row {
  const more = coded.map((cpuMs, at) => cpuMs - (plain[at] ?? Number.NaN))
  return {
    figure,
    unit: 'ms CPU',
    ours: coded,
    peer: { name: 'without a code', runs: plain },
    note: `${median(more).toFixed(3)} ms more`,
  }
}

async function compared(bench: SecondFactors, rounds: number, method: string) {
  const [coded, plain]: [number[], number[]] = [[], []]
  await inTurn(rounds, [
    async (round) => void coded.push(await bench.read(method, STEPS[round])),
    async () => void plain.push(await bench.read('open')),
  ])
  return { coded, plain }
}

/** CPU of a process from its start until the core is active. */
async function starts(core: CoreServer, rounds: number): Promise<number[]> {
  const all: number[] = []
  for (let round = 0; round < rounds; round++) {
    await core.stop()
    await core.start()
    all.push(cpuSeconds(core.pid) * 1000)
  }
  return all
}

class SecondFactors {
  readonly #core: CoreServer
  readonly #callers: Caller[] = []

  constructor(core: CoreServer) {
    this.#core = core
  }

  async prepare(count: number): Promise<void> {
    for (const name of ['open', ...METHODS]) {
      await this.#ask('POST', `secret/data/${name}`, { data: { value: 'x' } })
      if (name === 'open') continue
      const body = { issuer: 'bench', period: PERIOD_SECONDS, qr_size: 0 }
      await this.#ask('POST', `sys/mfa/method/totp/${name}`, body)
    }
    await this.#ask('PUT', 'sys/policies/acl/reader', { policy: POLICY })
    const mounts = await this.#ask('GET', 'sys/auth')
    const { accessor } = mounts['token/'] as { accessor: string }
    await this.#ask('POST', 'auth/token/roles/reader', { allowed_entity_aliases: ['*'], allowed_policies: ['reader'] })
    await eachOf(count, async (at) => {
      const entityId = await this.#entity(`caller${at}`)
      const alias = { name: `caller${at}`, canonical_id: entityId, mount_accessor: accessor }
      await this.#ask('POST', 'identity/entity-alias', alias)
      const made = await this.#ask('POST', 'auth/token/create/reader', {
        entity_alias: alias.name,
        policies: ['reader'],
      })
      const { client_token: token } = made['auth'] as { client_token: string }
      const keys = new Map<string, Uint8Array>()
      for (const method of METHODS) keys.set(method, await this.#enrol(method, entityId))
      this.#callers.push({ token, keys })
    })
  }

  async enrolOthers(count: number): Promise<void> {
    await eachOf(count, async (at) => void (await this.#enrol('many', await this.#entity(`other${at}`))))
  }

  async #entity(name: string): Promise<string> {
    const made = await this.#ask('POST', 'identity/entity', { name })
    return (made['data'] as { id: string }).id
  }

  async #enrol(method: string, entityId: string): Promise<Uint8Array> {
    const made = await this.#ask('POST', `sys/mfa/method/totp/${method}/admin-generate`, { entity_id: entityId })
    return bytesOfBase32((made['data'] as { secret: string }).secret) ?? Buffer.alloc(0)
  }

  async #ask(verb: string, path: string, body?: object): Promise<Record<string, unknown>> {
    const answer = await this.#core.ask(verb, path, body)
    if (answer.status >= 300) throw new WrongContent(`${verb} ${path}: ${answer.status} ${answer.body}`)
    return answer.body === '' ? {} : (JSON.parse(answer.body) as Record<string, unknown>)
  }

  /** CPU milliseconds of the server per read. Each caller sends one, with the code of `step` if given. */
  async read(name: string, step?: number): Promise<number> {
    const callers = this.#callers
    const codes = callers.map(({ keys }) => {
      const key = keys.get(name)
      return key && step !== undefined ? `${name}:${codeAt(key, FORM, stepAt(FORM, Date.now()) + step)}` : undefined
    })
    const before = cpuSeconds(this.#core.pid)
    await eachOf(callers.length, async (at) => {
      const status = await this.#get(name, callers[at]?.token ?? '', codes[at])
      if (status !== 200) throw new WrongContent(`a read of ${name} returned ${status}`)
    })
    return ((cpuSeconds(this.#core.pid) - before) * 1000) / callers.length
  }

  async #get(name: string, token: string, code?: string): Promise<number> {
    const headers = { 'X-Vault-Token': token, ...(code !== undefined && { 'X-Vault-MFA': code }) }
    const answer = await fetch(`http://127.0.0.1:${this.#core.port}/v1/secret/data/${name}`, { headers })
    await answer.arrayBuffer()
    return answer.status
  }
}

/** Calls the function for each number below `count`, several at a time. */
async function eachOf(count: number, work: (at: number) => Promise<void>): Promise<void> {
  let next = 0
  const worker = async () => {
    while (next < count) await work(next++)
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker))
}

if (import.meta.main) await alone(mfa)
