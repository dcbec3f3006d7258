/**
 * One GET of a status page, for the diagnosis. Not the client of commands: the times of the request are measured, and an invalid
 * certificate must not prevent it.
 */
import { parseJson } from '../../cli/client/http-client.ts'

const TIMEOUT_MS = 3000
/** Of the whole answer: the process at the address may not be outpost. */
const ANSWER_TIMEOUT_MS = 10_000
const BODY_BYTES_MAX = 1 << 20

export interface StatusAnswer {
  readonly status: number
  /** Parsed JSON; undefined for another body. */
  readonly body: unknown
  /** Time of the server, and the local times before the request and after its response. */
  readonly serverTimeMs: number | undefined
  readonly sentAtMs: number
  readonly receivedAtMs: number
}

/**
 * Undefined without a response. Certificates are not verified here: no secret is sent, and the check `certificates` reports their
 * faults.
 */
export async function requestStatus(url: string, timeoutMs = TIMEOUT_MS): Promise<StatusAnswer | undefined> {
  const isTls = url.startsWith('https:')
  const { get } = isTls ? process.getBuiltinModule('node:https') : process.getBuiltinModule('node:http')
  const sentAtMs = Date.now()
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
  const options = { timeout: timeoutMs, signal, ...(isTls ? { rejectUnauthorized: false } : {}) }
  return new Promise((resolve) => {
    const request = get(url, options, (response) => {
      const receivedAtMs = Date.now()
      const chunks: Buffer[] = []
      const serverTimeMs = Date.parse(response.headers.date ?? '')
      let bytes = 0
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        if (bytes <= BODY_BYTES_MAX) chunks.push(chunk)
        else request.destroy()
      })
      response.on('error', () => resolve(undefined)).on('close', () => resolve(undefined))
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          body: parseJson(Buffer.concat(chunks).toString('utf8')),
          serverTimeMs: Number.isNaN(serverTimeMs) ? undefined : serverTimeMs,
          sentAtMs,
          receivedAtMs,
        })
      })
    })
    request.on('timeout', () => request.destroy())
    request.on('error', () => resolve(undefined))
  })
}
