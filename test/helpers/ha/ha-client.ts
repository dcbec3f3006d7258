/** Requests of the workload to one server, with an outcome for the checker. */
import { Agent, request } from 'node:http'

export type Outcome =
  | { readonly kind: 'answer'; readonly status: number; readonly body: string }
  /** The request was not sent. */
  | { readonly kind: 'not sent' }
  | { readonly kind: 'unknown'; readonly note: string }

export interface ClientRequest {
  readonly method: string
  /** After `/v1/`. */
  readonly path: string
  readonly body?: object
  readonly headers?: Readonly<Record<string, string>>
  readonly token?: string
}

export interface AskedServer {
  readonly name: string
  readonly url: string
}

/** Errors of a connection attempt. */
const NOT_SENT = new Set(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'EADDRNOTAVAIL'])

/** One client: it keeps its connections, as stock clients do. */
export class HaClient {
  readonly #agent = new Agent({ keepAlive: true })
  readonly #timeoutMs: number
  readonly #token: string

  constructor(token: string, timeoutMs: number) {
    this.#token = token
    this.#timeoutMs = timeoutMs
  }

  send({ url }: AskedServer, { body, headers, method, path, token }: ClientRequest): Promise<Outcome> {
    return new Promise((resolve) => {
      const sent = request(`${url}/v1/${path}`, {
        method,
        agent: this.#agent,
        headers: { 'X-Vault-Token': token ?? this.#token, ...headers },
        signal: AbortSignal.timeout(this.#timeoutMs),
      })
      const failed = (error: NodeJS.ErrnoException) => {
        const { code = error.name } = error
        resolve(NOT_SENT.has(code) ? { kind: 'not sent' } : { kind: 'unknown', note: code })
      }
      sent.on('error', failed)
      sent.on('response', (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (part: string) => (text += part))
        response.on('error', failed)
        response.on('end', () => resolve({ kind: 'answer', status: response.statusCode ?? 0, body: text }))
      })
      sent.end(body === undefined ? undefined : JSON.stringify(body))
    })
  }

  close(): void {
    this.#agent.destroy()
  }
}

type Json = Readonly<Record<string, unknown>>

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null
}

/** The value at a path of member names; undefined where there is none, and for a body that is not JSON. */
export function memberOf(body: string, ...names: readonly string[]): unknown {
  let value: unknown
  try {
    value = JSON.parse(body)
  } catch {
    return undefined
  }
  for (const name of names) value = isObject(value) ? value[name] : undefined
  return value
}
