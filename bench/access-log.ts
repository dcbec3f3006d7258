/**
 * Cost of small requests and of a line of the access log: metadata, a secret of 1 KiB, `sys/health`, a token lookup and token
 * creation, over HTTP with the log at info and at error, on separate servers in alternating rounds. Measures
 * CPU of the main thread and of the whole server per request.
 *
 * `node bench/access-log.ts [--against CHECKOUT] [--rounds N] [--requests N] [--cases a,b] [--levels info,error] [--cpu-prof DIRECTORY]`
 *
 * `--against`: another checkout of the program as well. `--cpu-prof`: profiles of the threads, one server each.
 */
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { LAUNCHER } from './support/agent.ts'
import { CoreServer } from './support/core.ts'
import { plainNumber, WrongContent } from './support/figure.ts'
import { type Load, load, type Request } from './support/load.ts'
import { cpuByThread, inTurn, median } from './support/measure.ts'

const { values: options } = parseArgs({
  options: {
    against: { type: 'string' },
    rounds: { type: 'string', default: '5' },
    requests: { type: 'string', default: '6000' },
    cases: { type: 'string', default: 'metadata,secret,health,lookup-self,token' },
    levels: { type: 'string', default: 'info,error' },
    'cpu-prof': { type: 'string' },
  },
})
const PAD = 'x'.repeat(980)
const REQUESTS = Number(options.requests)
/** Number of requests until most code is compiled. A fixed time would be too short on a busy machine. */
const WARM_REQUESTS = 5000
/** Creating a token needs a commit. */
const TOKENS_PART = 4
const LEVELS = (['info', 'error'] as const).filter((level) => options.levels.split(',').includes(level))
const CASES = options.cases.split(',')

const found: Request['fault'] = (status, body) => (status === 200 ? undefined : `status ${status}: ${body.toString()}`)

interface Run {
  readonly load: Load
  readonly mainUs: number
}

/** Medians of the ratios of neighboring rounds of both sides, because load on the machine slows both. */
function ratioLines(here: Side, against: Side): string[] {
  return [...here.runs].map(([name, runs]) => {
    const others = against.runs.get(name) ?? []
    const of = (value: (run: Run) => number) =>
      plainNumber(median(runs.flatMap((run, at) => (others[at] ? [value(run) / value(others[at])] : []))))
    const all = of(({ load: { cpuMsPerRequest } }) => cpuMsPerRequest)
    const rate = of(({ load: { requestsPerSecond } }) => requestsPerSecond)
    return `${here.name} / ${against.name}: ${name}: CPU main ${of(({ mainUs }) => mainUs)}, all ${all}, rate ${rate}`
  })
}

/** One server and the requests to it. */
class Side {
  readonly name: string
  readonly core: CoreServer
  readonly runs = new Map<string, Run[]>()

  private constructor(name: string, core: CoreServer) {
    this.name = name
    this.core = core
  }

  static async start(name: string, launcher: string, level: 'info' | 'error'): Promise<Side> {
    const profile = options['cpu-prof']
    const nodeOptions = profile === undefined ? '' : `--cpu-prof --cpu-prof-dir=${resolve(profile)}`
    const core = new CoreServer(launcher, { OUTPOST_NODE_OPTIONS: nodeOptions }, level)
    await core.start()
    await core.initialise()
    const { status, body } = await core.ask('POST', 'secret/data/app/db', { data: { v: PAD } })
    if (status !== 200) throw new WrongContent(`the secret was not written: ${body}`)
    const side = new Side(name, core)
    for (const [, asked] of side.#cases) await side.#load(asked, WARM_REQUESTS)
    return side
  }

  readonly #all: readonly (readonly [name: string, next: () => Request])[] = [
    ['metadata', () => this.core.request('GET', 'client/metadata', found)],
    ['secret', () => this.core.request('GET', 'secret/data/app/db', found)],
    ['health', () => this.core.request('GET', 'sys/health', found)],
    ['lookup-self', () => this.core.request('GET', 'auth/token/lookup-self', found)],
    ['token', () => this.core.request('POST', 'auth/token/create', found, '{"policies":["default"],"ttl":"1h"}')],
  ]
  readonly #cases = this.#all.filter(([name]) => CASES.includes(name))

  #load(asked: () => Request, count: number): Promise<Load> {
    let left = count
    const next = () => (left-- > 0 ? asked() : undefined)
    return load({ port: this.core.port, pid: this.core.pid, durationMs: 3_600_000, next })
  }

  async run(): Promise<void> {
    for (const [name, next] of this.#cases) {
      const before = cpuByThread(this.core.pid).get('main') ?? 0
      const count = Math.ceil(REQUESTS / (name === 'token' ? TOKENS_PART : 1))
      const loaded = await this.#load(next, count)
      const seconds = (cpuByThread(this.core.pid).get('main') ?? 0) - before
      const mainUs = (seconds * 1e6) / count
      this.runs.set(name, [...(this.runs.get(name) ?? []), { load: loaded, mainUs }])
    }
  }

  report(): string {
    return [...this.runs]
      .map(([name, runs]) => {
        const of = (value: (run: Run) => number) => plainNumber(median(runs.map(value)))
        const rate = of(({ load: { requestsPerSecond } }) => requestsPerSecond)
        const all = of(({ load: { cpuMsPerRequest } }) => cpuMsPerRequest * 1000)
        return `${this.name.padEnd(16)} ${name.padEnd(11)} ${rate}/s  CPU us: main ${of(({ mainUs }) => mainUs)} all ${all}`
      })
      .join('\n')
  }
}

const launchers: [string, string][] = [['here', LAUNCHER]]
if (options.against !== undefined) launchers.push(['against', join(resolve(options.against), 'bin/outpost')])
const sides: Side[] = []
try {
  for (const [name, launcher] of launchers) {
    for (const level of LEVELS) sides.push(await Side.start(`${name}, ${level}`, launcher, level))
  }
  await inTurn(
    Number(options.rounds),
    sides.map((side) => () => side.run()),
  )
  process.stdout.write(`${sides.map((side) => side.report()).join('\n')}\n`)
  const pairs = sides.flatMap((here, at): [Side, Side][] => {
    const against = sides[at + LEVELS.length]
    return against ? [[here, against]] : []
  })
  for (const [here, against] of pairs) process.stdout.write(`${ratioLines(here, against).join('\n')}\n`)
} catch (error) {
  if (!(error instanceof WrongContent)) throw error
  process.stderr.write(`WRONG: ${error.message}\n`)
  process.exitCode = 1
} finally {
  for (const { core } of sides) await core.remove()
}
