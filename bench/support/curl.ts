/**
 * Downloads with curl, which costs little, is the same for both sides, and belongs to neither of them.
 */
import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { cpuSeconds, type Pids } from './measure.ts'
import { type Row, WrongContent } from './figure.ts'

export interface Download {
  readonly megabytesPerSecond: number
  /** CPU seconds of the serving processes per gigabyte. */
  readonly cpuSecondsPerGigabyte: number
}

/**
 * Downloads, discards and checks the length. Rates are in `payload` bytes, which are fewer
 * than the body bytes of framed streams.
 */
export async function download(options: {
  port: number
  path: string
  pid: Pids
  bodyBytes: number
  payloadBytes?: number
}): Promise<Download> {
  const { port, path, pid, bodyBytes, payloadBytes = bodyBytes } = options
  const before = cpuSeconds(pid)
  const form = '%{http_code} %{size_download} %{time_total}'
  const child = spawn('curl', ['-s', '-o', '/dev/null', '-w', form, `http://127.0.0.1:${port}${path}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [status, bytes, seconds] = (await text(child.stdout)).split(' ').map(Number)
  const cpu = cpuSeconds(pid) - before
  if (status !== 200 || bytes !== bodyBytes || seconds === undefined) {
    throw new WrongContent(`${path}: status ${status}, ${bytes} of ${bodyBytes} bytes`)
  }
  return { megabytesPerSecond: payloadBytes / 1e6 / seconds, cpuSecondsPerGigabyte: cpu / (payloadBytes / 1e9) }
}

const rateOf = ({ megabytesPerSecond }: Download) => megabytesPerSecond
const cpuOf = ({ cpuSecondsPerGigabyte }: Download) => cpuSecondsPerGigabyte

export function downloadRow(
  figure: string,
  ours: readonly Download[],
  peer: { name: string; runs: readonly Download[] },
): Row {
  return {
    figure,
    unit: 'MB/s',
    ours: ours.map(rateOf),
    peer: { name: peer.name, runs: peer.runs.map(rateOf) },
    cpu: { unit: 's/GB', ours: ours.map(cpuOf), peer: peer.runs.map(cpuOf) },
  }
}
