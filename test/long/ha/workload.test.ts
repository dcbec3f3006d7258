/**
 * The workload of the tests of high availability against one server: it finds nothing wrong with a correct one, and a server
 * that answers with old values, acknowledges what it does not write, or unwraps twice is found.
 */
import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, request } from 'node:http'
import { type TestContext, test } from 'node:test'
import { agentHere } from '../../helpers/agent-here.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'
import { Workload } from '../../helpers/ha/workload.ts'

const TOKEN = 'root'
const OPERATIONS = 250

interface Answer {
  readonly status: number
  readonly body: string
}

interface Asked {
  readonly method: string
  readonly path: string
  readonly body: string
}

/** Answers in place of the server, or changes its answer; undefined forwards. */
interface Lie {
  readonly instead?: (asked: Asked) => Answer | undefined
  readonly after?: (asked: Asked, answer: Answer) => Answer
}

async function bodyOf(message: IncomingMessage): Promise<string> {
  let text = ''
  for await (const part of message.setEncoding('utf8')) text += String(part)
  return text
}

/** A proxy before the server that tells the lie. */
async function lyingServer(t: TestContext, port: number, lie: Lie): Promise<string> {
  const server = createServer((asked, response) => {
    void (async () => {
      const sent = { method: asked.method ?? '', path: asked.url ?? '', body: await bodyOf(asked) }
      const answer = lie.instead?.(sent) ?? (await forwarded(port, sent, asked))
      const { body, status } = lie.after?.(sent, answer) ?? answer
      response.writeHead(status).end(body)
    })()
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const address = server.address()
  return typeof address === 'object' ? `http://127.0.0.1:${address?.port}` : ''
}

function forwarded(port: number, { body, method, path }: Asked, { headers }: IncomingMessage): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      { port, host: '127.0.0.1', method, path, headers: { ...headers, host: 'localhost' } },
      (response) => {
        void bodyOf(response).then((text) => resolve({ status: response.statusCode ?? 0, body: text }), reject)
      },
    )
    sent.on('error', reject)
    sent.end(body)
  })
}

async function developmentServer(t: TestContext): Promise<number> {
  const args = ['-dev', '-dev-no-demo', '-http-port', '0', '-cluster-port', '0', '-dev-root-token-id', TOKEN]
  const agent = await agentHere(t, [...args, '-data-dir', temporaryDirectory(t)])
  return agent.port
}

async function ran(t: TestContext, port: number, prefix: string, lie: Lie): Promise<Workload> {
  const url = await lyingServer(t, port, lie)
  const servers = [{ name: 's1', url }] as const
  const workload = new Workload({
    servers,
    token: TOKEN,
    seed: 1,
    prefix,
    clients: 10,
    timeoutMs: 10_000,
    pauseMsMax: 5,
  })
  await workload.prepare()
  workload.start()
  await eventually(() => workload.acknowledged > OPERATIONS)
  await workload.finish()
  return workload
}

test('the workload finds lies of a server and nothing else', async (t) => {
  const port = await developmentServer(t)

  await t.test('a correct server', async (t2) => {
    const workload = await ran(t2, port, 'good/', {})
    assert.deepEqual(workload.unexpected, [])
    assert.deepEqual(
      workload.violations().map(({ report }) => report),
      [],
    )
    const kinds = [workload.registers, workload.counters, workload.lists, workload.uses]
    for (const kind of kinds) assert.ok(kind.finish().length > 20)
    assert.ok(workload.uses.finish().some(({ object, result }) => object.includes('wrapped') && result === 'denied'))
    assert.ok(workload.uses.finish().some(({ object, result }) => object.includes('token') && result === 'denied'))
  })

  await t.test('old values', async (t2) => {
    const old = new Map<string, Answer>()
    let reads = 0
    const workload = await ran(t2, port, 'old/', {
      after({ method, path }, answer) {
        if (method !== 'GET' || answer.status !== 200) return answer
        if (!old.has(path)) old.set(path, answer)
        return ++reads % 20 === 0 ? (old.get(path) ?? answer) : answer
      },
    })
    // Of a register, a counter or a list.
    assert.match(workload.violations()[0]?.report ?? '', /violation, \d+ of/)
  })

  await t.test('an acknowledgement without a write', async (t2) => {
    const versions = new Map<string, number>()
    let writes = 0
    const workload = await ran(t2, port, 'lost/', {
      instead({ body, method, path }) {
        const version = versions.get(path)
        const isPlain = method === 'PUT' && !body.includes('cas')
        if (!isPlain || version === undefined || !/\/r\d$/.test(path) || ++writes % 3 !== 0) return undefined
        return { status: 200, body: JSON.stringify({ data: { version: version + 1 } }) }
      },
      after({ path }, answer) {
        const version = /"version":(\d+)/.exec(answer.body)?.[1]
        if (version !== undefined) versions.set(path, Math.max(Number(version), versions.get(path) ?? 0))
        return answer
      },
    })
    assert.match(workload.violations()[0]?.report ?? '', /^register r\d: violation, [23] of/)
  })

  await t.test('a second unwrapping', async (t2) => {
    const unwrapped = new Map<string, Answer>()
    const workload = await ran(t2, port, 'twice/', {
      instead: ({ body }) => unwrapped.get(body),
      after({ body, path }, answer) {
        if (path.endsWith('/unwrap') && answer.status === 200) unwrapped.set(body, answer)
        return answer
      },
    })
    const reports = workload.violations().map(({ report }) => report)
    assert.match(reports[0] ?? '', /^limited uses twice\/wrapped\d+: violation, 2 of/)
  })
})
