/**
 * A server that is killed at random moments of mixed requests: secrets, cubbyholes, policies, tokens, mounts. What it
 * answered is there when it is started again, what it did not answer is there whole or not at all, and the log's
 * checksums hold. `CRASH_REQUESTS=10000 OUTPOST_SEED=…` for a long look.
 */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { Random } from '../helpers/frames.ts'
import { send } from '../helpers/openbao-replay.ts'

const REQUESTS = Number(process.env['CRASH_REQUESTS'] ?? 150)
const SEED = Number(process.env['OUTPOST_SEED'] ?? 1)
/** More in the long form. */
const WORKERS = REQUESTS > 150 ? 16 : 8
const NAMES = 6
/** Between two kills. */
const ANSWERS_MAX = 100

interface Request {
  readonly method: string
  readonly path: string
  readonly body?: unknown
  /** The root token unless given. */
  readonly token?: string
}

/** One thing that is there with a value, or is not. */
interface Thing {
  readonly set: (value: string) => Request
  readonly remove: Request
  readonly look: Request
  /** The value in what `look` was answered; undefined where it is not there. */
  readonly valueIn: (status: number, body: string) => string | undefined
}

const policyText = (value: string) => `# ${value}\npath "secret/*" { capabilities = ["read"] }`
const found = (status: number, body: string, pattern: RegExp) =>
  status === 200 ? (pattern.exec(body)?.[1] ?? 'something else') : undefined

function thingsOf(worker: number, token: string): Thing[] {
  const names = Array.from({ length: NAMES }, (_, at) => `w${worker}-${at}`)
  return names.flatMap((name, at): Thing[] => {
    const secret = `secret/data/w${worker}/${at}`
    const [cubby, policy, mount] = [`cubbyhole/${at}`, `sys/policies/acl/${name}`, `sys/mounts/${name}`]
    return [
      {
        set: (value) => ({ method: 'POST', path: secret, body: { data: { value, pad: 'x'.repeat(at * 300) } } }),
        remove: { method: 'DELETE', path: `secret/metadata/w${worker}/${at}` },
        look: { method: 'GET', path: secret },
        valueIn: (status, body) => found(status, body, /"value":"([^"]*)"/),
      },
      {
        set: (value) => ({ method: 'POST', path: cubby, body: { value }, token }),
        remove: { method: 'DELETE', path: cubby, token },
        look: { method: 'GET', path: cubby, token },
        valueIn: (status, body) => found(status, body, /"value":"([^"]*)"/),
      },
      {
        set: (value) => ({ method: 'PUT', path: policy, body: { policy: policyText(value) } }),
        remove: { method: 'DELETE', path: policy },
        look: { method: 'GET', path: policy },
        valueIn: (status, body) => found(status, body, /"# (\S+)\\n/),
      },
      {
        set: (value) => ({ method: 'POST', path: mount, body: { type: 'kv-v2', description: value } }),
        remove: { method: 'DELETE', path: mount },
        look: { method: 'GET', path: mount },
        valueIn: (status, body) => found(status, body, /"description":"([^"]*)"/),
      },
    ]
  })
}

/** Does one request after another until the server is gone, and remembers what each must have led to. */
class Worker {
  readonly #things: readonly Thing[]
  readonly #values = new Map<Thing, string | undefined>()
  #open: { readonly thing: Thing; readonly after: string | undefined } | undefined
  readonly #random: Random
  done = 0
  #count = 0

  constructor(things: readonly Thing[], random: Random) {
    this.#things = things
    this.#random = random
  }

  async work(port: number): Promise<void> {
    for (;;) {
      const thing = this.#things[this.#random.between(0, this.#things.length - 1)]
      assert.ok(thing)
      const isMount = thing.remove.path.startsWith('sys/mounts')
      const removes = this.#random.between(0, 2) === 0 || (isMount && this.#values.get(thing) !== undefined)
      const value = removes ? undefined : `v${++this.#count}-${this.#random.between(0, 1e6)}`
      this.#open = { thing, after: value }
      const answer = await ask(port, value === undefined ? thing.remove : thing.set(value)).catch(() => undefined)
      if (!answer) return
      assert.ok(answer.status < 300, `${thing.look.path}: ${answer.status} ${answer.body}`)
      this.#open = undefined
      this.#values.set(thing, value)
      this.done++
    }
  }

  /** Compares with what is there, and goes on from that. */
  async verify(port: number): Promise<void> {
    for (const thing of this.#things) {
      const answer = await ask(port, thing.look)
      const there = thing.valueIn(answer.status, answer.body)
      const allowed = [this.#values.get(thing), ...(this.#open?.thing === thing ? [this.#open.after] : [])]
      assert.ok(allowed.includes(there), `${thing.look.path} is ${String(there)} and not ${allowed.join(' or ')}`)
      this.#values.set(thing, there)
    }
    this.#open = undefined
  }
}

async function ask(port: number, { body, method, path, token = 'root' }: Request) {
  const headers = { 'X-Vault-Token': token }
  const sent = body === undefined ? {} : { body: JSON.stringify(body) }
  return send(port, { method, path: `/v1/${path}`, headers, ...sent })
}

function start(t: TestContext, directory: string) {
  const args = ['-dev', '-dev-no-demo', '-http-port', '0', '-cluster-port', '0', '-dev-root-token-id', 'root']
  return startAgent(t, [...args, '-data-dir', directory])
}

test('a server that is killed repeatedly keeps every answered change, and none partially', async (t) => {
  const directory = workDirectory(t)
  const random = new Random(SEED)
  let agent = await start(t, directory)
  const workers: Worker[] = []
  for (let at = 0; at < WORKERS; at++) {
    const made = await ask(agent.port, { method: 'POST', path: 'auth/token/create', body: { policies: ['default'] } })
    const token = /"client_token":"([^"]*)"/.exec(made.body)?.[1] ?? ''
    workers.push(new Worker(thingsOf(at, token), random))
  }
  const total = () => workers.reduce((sum, { done }) => sum + done, 0)
  let kills = 0
  for (; total() < REQUESTS || kills < 2; kills++) {
    const { child, ended, port } = agent
    const work = Promise.all(workers.map((worker) => worker.work(port)))
    // After so many requests and not after a time, in which a machine that is busy otherwise does too few of them.
    const enough = total() + random.between(0, ANSWERS_MAX)
    while (total() < enough) await delay(1)
    await delay(random.between(0, 10))
    child.kill('SIGKILL')
    await Promise.all([work, ended])
    assert.deepEqual(checkDatabase(join(directory, 'server/secrets.db')), [], `after kill ${kills}`)
    agent = await start(t, directory)
    await Promise.all(workers.map((worker) => worker.verify(agent.port)))
  }
  t.diagnostic(`${total()} requests, ${kills} kills, OUTPOST_SEED=${SEED}`)
})
