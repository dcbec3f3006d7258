/**
 * Many small requests over persistent connections, as fast as the server responds. Every response is checked.
 */
import { type Row, WrongContent } from './figure.ts'
import { HttpSocket } from './http-socket.ts'
import { cpuSeconds, nowMs, percentile, type Pids } from './measure.ts'

export interface Request {
  /** GET where it is absent. */
  readonly verb?: string
  readonly path: string
  readonly header?: string
  /** ASCII; its length is among the headers. */
  readonly body?: string
  /** What is wrong with the response, if anything. The body is valid only during the call. */
  readonly fault: (status: number, body: Buffer) => string | undefined
}

export interface Rate {
  readonly requestsPerSecond: number
  /** CPU milliseconds of the serving processes per request. */
  readonly cpuMsPerRequest: number
}

export interface Load extends Rate {
  /** From the last byte of the request to the last byte of the response. */
  readonly p50Ms: number
  readonly p99Ms: number
}

const CONNECTIONS = 16
/** Bodies that arrive in several reads are assembled here. */
const BODY_BYTES_MAX = 1 << 20

export async function load(options: {
  port: number
  pid: Pids
  durationMs: number
  connections?: number
  /** The next request; `isFirst` on a connection without an earlier request. Undefined: no requests remain. */
  next: (isFirst: boolean) => Request | undefined
}): Promise<Load> {
  const { connections = CONNECTIONS, port, pid, durationMs, next } = options
  const [beganMs, cpuBefore] = [nowMs(), cpuSeconds(pid)]
  const untilMs = beganMs + durationMs
  const times: number[] = []
  const one = () => oneConnection(new HttpSocket(port), { next, untilMs, times })
  await Promise.all(Array.from({ length: connections }, one))
  const requests = times.length
  return {
    requestsPerSecond: requests / ((nowMs() - beganMs) / 1000),
    cpuMsPerRequest: ((cpuSeconds(pid) - cpuBefore) * 1000) / requests,
    p50Ms: percentile(times, 0.5),
    p99Ms: percentile(times, 0.99),
  }
}

interface Run {
  readonly next: (isFirst: boolean) => Request | undefined
  readonly untilMs: number
  /** Receives the duration of each request. */
  readonly times: number[]
}

function oneConnection(socket: HttpSocket, { next, times, untilMs }: Run): Promise<void> {
  const whole = Buffer.allocUnsafeSlow(BODY_BYTES_MAX)
  return new Promise((resolve, reject) => {
    let isFirst = true
    const wrong = (text: string) => {
      socket.close()
      reject(new WrongContent(text))
    }
    const done = () => {
      socket.close()
      resolve()
    }
    const ask = () => {
      const request = next(isFirst)
      if (!request) return done()
      isFirst = false
      let [status, length] = [0, 0]
      const beganMs = performance.now()
      const handler = {
        onHead: (code: number) => void (status = code),
        onBody: (bytes: Buffer) => void (length += bytes.copy(whole, length)),
        onEnd() {
          times.push(performance.now() - beganMs)
          const fault = request.fault(status, whole.subarray(0, length))
          if (fault !== undefined) return wrong(`${request.path}: ${fault}`)
          return nowMs() < untilMs ? void setImmediate(ask) : done()
        },
        onFail: (error: Error) => wrong(`${request.path}: ${error.message}`),
      }
      socket.get(request.path, handler, request.header, request.verb, request.body)
    }
    ask()
  })
}

const rateOf = ({ requestsPerSecond }: Rate) => requestsPerSecond
const cpuOf = ({ cpuMsPerRequest }: Rate) => cpuMsPerRequest

export function loadRow(figure: string, ours: readonly Rate[], peer: { name: string; loads: readonly Rate[] }): Row {
  return {
    figure,
    unit: 'req/s',
    ours: ours.map(rateOf),
    peer: { name: peer.name, runs: peer.loads.map(rateOf) },
    cpu: { unit: 'ms/req', ours: ours.map(cpuOf), peer: peer.loads.map(cpuOf) },
  }
}
