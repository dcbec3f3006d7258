/**
 * Whole files over WebSocket, compared with the same as an HTTP stream, with clients that do equally little:
 * framed `fs/stream`, framed and plain `fs/logs`.
 */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { ALLOC_ID, FS, logsPath, type RunningAgent, startAgent } from './support/agent.ts'
import { contentHash, MiB, writeContent } from './support/content.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { FrameReader } from './support/frames.ts'
import { HttpSocket } from './support/http-socket.ts'
import { cpuSeconds, inTurn, nowMs } from './support/measure.ts'
import { MessageSocket } from './support/message-socket.ts'

interface Case {
  readonly name: string
  readonly path: string
  readonly framed: boolean
}

interface Run {
  readonly megabytesPerSecond: number
  readonly cpuSecondsPerGigabyte: number
}

type Read = (port: number, path: string, onBytes: (bytes: Buffer) => void) => Promise<void>

export async function websocket(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  try {
    const bytes = (options.quick ? 64 : 512) * MiB + 1000
    writeContent(join(agent.site.allocation, 'alloc/data/big'), bytes)
    writeContent(agent.site.logFile(0), bytes)
    const path = `${FS}/stream/${ALLOC_ID}?path=alloc/data/big&follow=false&offset=0`
    const cases: Case[] = [
      { name: 'websocket stream framed', path, framed: true },
      { name: 'websocket logs framed', path: logsPath({ framed: true, follow: false }), framed: true },
      { name: 'websocket logs plain', path: logsPath({ framed: false, follow: false }), framed: false },
    ]
    const rows: Row[] = []
    for (const one of cases) rows.push(await measure(agent, one, { bytes, rounds: options.rounds }))
    return rows
  } finally {
    await agent.stop()
  }
}

async function measure(agent: RunningAgent, one: Case, size: { bytes: number; rounds: number }): Promise<Row> {
  const bodyBytes = await verify(agent.port, one, size.bytes)
  const ours: Run[] = []
  const theirs: Run[] = []
  await inTurn(size.rounds, [
    async () => void ours.push(await run(agent, readMessages, { ...one, bodyBytes, bytes: size.bytes })),
    async () => void theirs.push(await run(agent, readBody, { ...one, bodyBytes, bytes: size.bytes })),
  ])
  return {
    figure: `${one.name}, ${Math.round(size.bytes / MiB)} MiB`,
    unit: 'MB/s',
    ours: ours.map((each) => each.megabytesPerSecond),
    peer: { name: 'the same over HTTP', runs: theirs.map((each) => each.megabytesPerSecond) },
    cpu: {
      unit: 's/GB',
      ours: ours.map((each) => each.cpuSecondsPerGigabyte),
      peer: theirs.map((each) => each.cpuSecondsPerGigabyte),
    },
  }
}

async function run(
  { port, pid }: RunningAgent,
  read: Read,
  one: Case & { readonly bodyBytes: number; readonly bytes: number },
): Promise<Run> {
  let got = 0
  const [beganMs, cpuBefore] = [nowMs(), cpuSeconds(pid)]
  await read(port, one.path, (bytes) => void (got += bytes.length))
  const seconds = (nowMs() - beganMs) / 1000
  if (got !== one.bodyBytes) throw new WrongContent(`${one.name}: ${got} of ${one.bodyBytes} bytes`)
  return {
    megabytesPerSecond: one.bytes / 1e6 / seconds,
    cpuSecondsPerGigabyte: (cpuSeconds(pid) - cpuBefore) / (one.bytes / 1e9),
  }
}

/** Reads everything once over WebSocket and checks the hash. Resolves to the number of bytes in all messages. */
async function verify(port: number, { name, path, framed }: Case, bytes: number): Promise<number> {
  const hash = createHash('sha256')
  let [bodyBytes, fault] = [0, '']
  const frames = new FrameReader({
    onData: (data) => void hash.update(data),
    onEvent: (text) => void (fault ||= `unexpected frame ${text}`),
  })
  await readMessages(port, path, (part) => {
    bodyBytes += part.length
    if (framed) frames.feed(part)
    else hash.update(part)
  })
  if (fault === '' && hash.digest('hex') !== contentHash(bytes)) fault = 'the hash is not that of what was written'
  if (fault !== '') throw new WrongContent(`${name}: ${fault}`)
  return bodyBytes
}

const readMessages: Read = (port, path, onBytes) =>
  new Promise((resolve, reject) => {
    const wrong = (text: string) => reject(new WrongContent(`${path}: ${text}`))
    const onClose = (code: number) => (code === 1000 ? resolve() : wrong(`closed with ${code}`))
    new MessageSocket(port).open(path, { onBytes, onClose, onFail: (error) => wrong(error.message) })
  })

const readBody: Read = (port, path, onBody) =>
  new Promise((resolve, reject) => {
    const socket = new HttpSocket(port)
    const onEnd = () => {
      socket.close()
      resolve()
    }
    socket.get(path, { onBody, onEnd, onFail: (error) => reject(new WrongContent(`${path}: ${error.message}`)) })
  })

if (import.meta.main) await alone(websocket)
