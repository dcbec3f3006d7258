/** A stub of a secrets core that records requests with their bodies and sends given responses. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { runCommand } from '../../src/cli/command.ts'

export interface Recorded {
  /** `PUT sys/unseal`, with the query where there is one. */
  readonly line: string
  /** Parsed; undefined without one. */
  readonly body: unknown
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

export interface RecordingCore {
  readonly url: string
  readonly asked: Recorded[]
  /** By the line of the request; the status and the body. What is not named is answered with `otherwise`. */
  answers: Readonly<Record<string, readonly [number, unknown]>>
  /** 204 unless a test sets it. */
  otherwise: readonly [number, unknown]
}

export async function recordingCore(t: TestContext): Promise<RecordingCore> {
  const asked: Recorded[] = []
  const core: RecordingCore = { url: '', asked, answers: {}, otherwise: [204, undefined] }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => void chunks.push(chunk))
    request.on('end', () => {
      const line = `${request.method} ${(request.url ?? '').replace(/^\/v1\//, '')}`
      const text = Buffer.concat(chunks).toString('utf8')
      asked.push({ line, body: text === '' ? undefined : JSON.parse(text), headers: request.headers })
      const [status, body] = core.answers[line] ?? core.otherwise
      response.writeHead(status, { 'Content-Type': 'application/json' })
      response.end(body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body))
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return Object.assign(core, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
}

export interface Ran {
  readonly code: number
  readonly out: string
  readonly err: string
}

/** The command in this process, which asks `core`. */
export async function runAt(
  core: { readonly url: string },
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Ran> {
  let out = ''
  let err = ''
  const io = {
    out: (text: string) => void (out += text),
    err: (text: string) => void (err += text),
    env: { OUTPOST_ADDR: core.url, OUTPOST_TOKEN: 'a-token', ...env },
  }
  const code = await runCommand(args, io)
  return { code, out, err }
}
