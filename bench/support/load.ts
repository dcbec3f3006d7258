/**
 * Many small requests over connections that are kept: as fast as they are answered, every answer looked at.
 */
import { type Row, WrongContent } from './figure.ts'
import { HttpSocket } from './http-socket.ts'
import { cpuSeconds, nowMs, type Pids } from './measure.ts'

export interface Request {
  /** GET where it is absent. */
  readonly verb?: string
  readonly path: string
  readonly header?: string
  /** What is wrong with the answer, if anything is. The body is valid only during the call. */
  readonly fault: (status: number, body: Buffer) => string | undefined
}

export interface Load {
  readonly requestsPerSecond: number
  /** CPU milliseconds of whoever serves for a request. */
  readonly cpuMsPerRequest: number
}

const CONNECTIONS = 16
/** Bodies that come in several reads are put together here. */
const BODY_BYTES_MAX = 1 << 20

export async function load(options: {
  port: number
  pid: Pids
  durationMs: number
  /** What is asked next; `isFirst` on a connection that has asked nothing yet. */
  next: (isFirst: boolean) => Request
}): Promise<Load> {
  const { port, pid, durationMs, next } = options
  const [beganMs, cpuBefore] = [nowMs(), cpuSeconds(pid)]
  const untilMs = beganMs + durationMs
  const counts = await Promise.all(
    Array.from({ length: CONNECTIONS }, () => oneConnection(new HttpSocket(port), next, untilMs)),
  )
  const requests = counts.reduce((sum, count) => sum + count, 0)
  return {
    requestsPerSecond: requests / ((nowMs() - beganMs) / 1000),
    cpuMsPerRequest: ((cpuSeconds(pid) - cpuBefore) * 1000) / requests,
  }
}

/** The number of requests that were answered. */
function oneConnection(socket: HttpSocket, next: (isFirst: boolean) => Request, untilMs: number): Promise<number> {
  const whole = Buffer.allocUnsafeSlow(BODY_BYTES_MAX)
  return new Promise((resolve, reject) => {
    let count = 0
    const wrong = (text: string) => {
      socket.close()
      reject(new WrongContent(text))
    }
    const ask = () => {
      const request = next(count === 0)
      let [status, length] = [0, 0]
      socket.get(
        request.path,
        {
          onHead: (code) => void (status = code),
          onBody: (bytes) => void (length += bytes.copy(whole, length)),
          onEnd() {
            count++
            const fault = request.fault(status, whole.subarray(0, length))
            if (fault !== undefined) return wrong(`${request.path}: ${fault}`)
            if (nowMs() < untilMs) return setImmediate(ask)
            socket.close()
            return resolve(count)
          },
          onFail: (error) => wrong(`${request.path}: ${error.message}`),
        },
        request.header,
        request.verb,
      )
    }
    ask()
  })
}

const rateOf = ({ requestsPerSecond }: Load) => requestsPerSecond
const cpuOf = ({ cpuMsPerRequest }: Load) => cpuMsPerRequest

export function loadRow(figure: string, ours: readonly Load[], peer: { name: string; loads: readonly Load[] }): Row {
  return {
    figure,
    unit: 'req/s',
    ours: ours.map(rateOf),
    peer: { name: peer.name, runs: peer.loads.map(rateOf) },
    cpu: { unit: 'ms/req', ours: ours.map(cpuOf), peer: peer.loads.map(cpuOf) },
  }
}
