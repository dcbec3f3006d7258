/**
 * Cost of an audit file: writes of 1 KiB secrets over HTTP, alternately with and without a device on the same server. Also
 * measures CPU of the server, because the rate depends on how busy the disk is.
 */
import { join } from 'node:path'
import { CoreServer } from './support/core.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { type Load, load } from './support/load.ts'
import { inTurn } from './support/measure.ts'

const CONNECTIONS = 64
const BODY = `{"data":{"v":"${'x'.repeat(1024)}"}}`

const isWritten = (status: number, body: Buffer) =>
  status === 200 ? undefined : `status ${status}: ${body.toString()}`

export async function audit(options: Options): Promise<Row[]> {
  const core = new CoreServer()
  try {
    await core.start()
    await core.initialise()
    const file = join(core.site.directory, 'data/audit/audit.log')
    let at = 0
    const durationMs = options.quick ? 500 : 4000
    const run = (forMs = durationMs) =>
      load({
        port: core.port,
        pid: core.pid,
        connections: CONNECTIONS,
        durationMs: forMs,
        next: () => core.request('POST', `secret/data/${at >> 10}/${at++}`, isWritten, BODY),
      })
    const device = async (verb: string, body?: object) => {
      const answer = await core.ask(verb, 'sys/audit/file', body)
      if (answer.status !== 204) throw new WrongContent(`the device: ${answer.body}`)
    }
    await run(durationMs / 2)
    const [recorded, plain]: [Load[], Load[]] = [[], []]
    await inTurn(options.rounds, [
      async () => {
        await device('PUT', { type: 'file', options: { file_path: file } })
        recorded.push(await run())
        await device('DELETE')
      },
      async () => void plain.push(await run()),
    ])
    return [
      {
        figure: `secret written, ${CONNECTIONS} in flight, with an audit file`,
        unit: 'req/s',
        ours: recorded.map(({ requestsPerSecond }) => requestsPerSecond),
        peer: { name: 'req/s without a device', runs: plain.map(({ requestsPerSecond }) => requestsPerSecond) },
        cpu: {
          unit: 'ms/req',
          ours: recorded.map(({ cpuMsPerRequest }) => cpuMsPerRequest),
          peer: plain.map(({ cpuMsPerRequest }) => cpuMsPerRequest),
        },
      },
    ]
  } finally {
    await core.remove()
  }
}

if (import.meta.main) await alone(audit)
