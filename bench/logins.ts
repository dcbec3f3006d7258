/**
 * A log tail during password logins: latency of an appended line while 50 logins a second arrive, compared with the
 * same tail of the same server without logins; and how many of the logins got a token.
 */
import { writeFileSync } from 'node:fs'
import { lineLatencies, type Writer } from './follow-latency.ts'
import { logsPath } from './support/agent.ts'
import { Helper } from './support/child.ts'
import { line } from './support/content.ts'
import { CoreServer } from './support/core.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { inTurn, percentile } from './support/measure.ts'

const LOGINS_A_SECOND = 50

/** Sends logins at a fixed rate, regardless of earlier ones, until stopped. */
class Logins {
  readonly #timer: NodeJS.Timeout
  readonly #answers: Promise<number>[] = []
  readonly #beganMs = performance.now()

  constructor(core: CoreServer) {
    this.#timer = setInterval(() => {
      const url = `http://127.0.0.1:${core.port}/v1/auth/userpass/login/alice`
      const sent = fetch(url, { method: 'POST', body: '{"password":"a long password"}' })
      this.#answers.push(
        sent.then(
          async (answer) => {
            await answer.arrayBuffer()
            return answer.status
          },
          () => 0,
        ),
      )
    }, 1000 / LOGINS_A_SECOND)
  }

  /** Logins per second that got a token. */
  async end(): Promise<number> {
    clearInterval(this.#timer)
    const statuses = await Promise.all(this.#answers)
    const odd = statuses.find((status) => status !== 200 && status !== 503)
    if (odd !== undefined) throw new WrongContent(`a login returned ${odd}`)
    const seconds = (performance.now() - this.#beganMs) / 1000
    return statuses.filter((status) => status === 200).length / seconds
  }
}

export async function logins(options: Options): Promise<Row[]> {
  const core = new CoreServer()
  const writer: Writer = new Helper('writer')
  const count = options.quick ? 100 : 500
  const [beside, idle, rate]: [number[], number[], number[]] = [[], [], []]
  try {
    await core.start()
    await core.initialise()
    await core.ask('POST', 'sys/auth/userpass', { type: 'userpass' })
    await core.ask('POST', 'auth/userpass/users/alice', { password: 'a long password' })
    await inTurn(Math.min(options.rounds, 3), [
      async () => {
        const load = new Logins(core)
        try {
          beside.push(percentile(await tail(core, writer, count), 0.99))
        } finally {
          rate.push(await load.end())
        }
      },
      async () => void idle.push(percentile(await tail(core, writer, count), 0.99)),
    ])
  } finally {
    await Promise.all([core.stop(), writer.stop()])
  }
  return [
    {
      figure: `follow during ${LOGINS_A_SECOND} logins a second, line written to line received, p99`,
      unit: 'ms',
      ours: beside,
      peer: { name: 'without logins', runs: idle },
    },
    { figure: 'password logins that got a token', unit: '/s', ours: rate },
  ]
}

function tail(core: CoreServer, writer: Writer, count: number): Promise<number[]> {
  core.site.removeLogs()
  const file = core.site.logFile(0)
  writeFileSync(file, line(0))
  const path = logsPath({ framed: true, follow: true })
  return lineLatencies(writer, { file, count, first: 1 }, { port: core.port, path, framed: true })
}

if (import.meta.main) await alone(logins)
