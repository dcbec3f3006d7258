/** A client of a `watch` stream, which records the received lines and how the stream ended. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'

/** A line, or the data of an event. */
export interface WatchLine {
  readonly path?: string
  readonly change?: string
  readonly version?: number
  readonly cursor: string
  readonly reset?: boolean
  readonly status?: number
  readonly errors?: readonly string[]
}

export interface WatchStream {
  readonly status: number
  readonly response: IncomingMessage
  readonly text: () => string
  /** The end of the text: searching a long text repeatedly takes minutes. */
  readonly tail: () => string
  /** All complete lines. */
  readonly lines: () => WatchLine[]
  /** Events in the form `write a 1`. */
  readonly told: () => string[]
  readonly ended: Promise<'end' | 'broken'>
  close(): void
}

export interface StreamOptions {
  readonly token: string
  readonly headers?: Readonly<Record<string, string>>
}

const TAIL_CHARACTERS = 4096

/** `path` is below `/v1/` and has its query. */
export async function openStream(port: number, path: string, options: StreamOptions): Promise<WatchStream> {
  const headers = { 'X-Vault-Token': options.token, ...options.headers }
  const outgoing = request({ host: '127.0.0.1', port, path: `/v1/${path}`, headers, agent: false })
  outgoing.end()
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
  outgoing.on('error', () => undefined)
  let text = ''
  let tail = ''
  response.setEncoding('utf8').on('data', (part: string) => {
    text += part
    tail = (tail + part).slice(-TAIL_CHARACTERS)
  })
  const ended = new Promise<'end' | 'broken'>((done) => {
    response.on('error', () => undefined)
    response.on('close', () => done(response.complete ? 'end' : 'broken'))
  })
  const parsed: WatchLine[] = []
  let parsedTo = 0
  /** Each line is parsed once, because pollers query a thousand streams repeatedly. */
  const lines = () => {
    const end = text.lastIndexOf('\n') + 1
    const whole = text.slice(parsedTo, end).split('\n').filter(Boolean)
    parsed.push(...whole.map((line) => JSON.parse(line) as WatchLine))
    parsedTo = end
    return [...parsed]
  }
  return {
    status: response.statusCode ?? 0,
    response,
    text: () => text,
    tail: () => tail,
    lines,
    told: () => lines().flatMap(({ change, path: name, version }) => (change ? [`${change} ${name} ${version}`] : [])),
    ended,
    close: () => void outgoing.destroy(),
  }
}
