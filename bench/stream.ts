/**
 * Whole files as streams: framed `fs/stream`, framed and plain `fs/logs` over rotated files, compared with the same number
 * of body bytes from memory through a bare socket.
 */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { ALLOC_ID, FS, logsPath, type RunningAgent, startAgent } from './support/agent.ts'
import { Helper, type Said } from './support/child.ts'
import { BLOCK_BYTES, contentHash, MiB, writeContent } from './support/content.ts'
import { type Download, download, downloadRow } from './support/curl.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { FrameReader } from './support/frames.ts'
import { HttpSocket } from './support/http-socket.ts'
import { inTurn } from './support/measure.ts'

const LOG_FILES = 4

interface Case {
  readonly name: string
  readonly path: string
  readonly framed: boolean
  readonly bytes: number
}

export async function stream(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  const memory = new Helper<never, Said>('bare/memory')
  try {
    const { port } = await memory.next()
    const rows: Row[] = []
    for (const one of prepare(agent, options.quick)) {
      rows.push(await measure(agent, one, { port, pid: memory.pid, rounds: options.rounds }))
    }
    return rows
  } finally {
    await Promise.all([agent.stop(), memory.stop()])
  }
}

function prepare(agent: RunningAgent, quick: boolean): Case[] {
  const streamBytes = (quick ? 64 : 512) * MiB + 1000
  const logBytes = (quick ? 16 : 64) * MiB
  writeContent(join(agent.site.allocation, 'alloc/data/big'), streamBytes)
  for (let index = 0; index < LOG_FILES; index++) {
    writeContent(agent.site.logFile(index), logBytes, (index * logBytes) / BLOCK_BYTES)
  }
  const path = `${FS}/stream/${ALLOC_ID}?path=alloc/data/big&follow=false&offset=0`
  const logs = (framed: boolean) => ({
    name: `logs ${framed ? 'framed' : 'plain'}, ${LOG_FILES} x ${logBytes / MiB} MiB`,
    path: logsPath({ framed, follow: false }),
    framed,
    bytes: LOG_FILES * logBytes,
  })
  const megabytes = Math.round(streamBytes / MiB)
  return [{ name: `stream framed, ${megabytes} MiB`, path, framed: true, bytes: streamBytes }, logs(true), logs(false)]
}

async function measure(
  agent: RunningAgent,
  { name, path, framed, bytes }: Case,
  raw: { port: number; pid: number; rounds: number },
): Promise<Row> {
  const { port, pid } = agent
  const bodyBytes = await verify(port, { name, path, framed, bytes })
  const ours: Download[] = []
  const theirs: Download[] = []
  const from = { port: raw.port, pid: raw.pid, path: `/?bytes=${bodyBytes}` }
  await inTurn(raw.rounds, [
    async () => void ours.push(await download({ port, pid, path, bodyBytes, payloadBytes: bytes })),
    async () => void theirs.push(await download({ ...from, bodyBytes, payloadBytes: bytes })),
  ])
  return downloadRow(name, ours, { name: 'raw loopback', runs: theirs })
}

/** Reads everything once and checks the hash and the offsets of the frames. Resolves to the number of body bytes. */
function verify(port: number, { name, path, framed, bytes }: Case): Promise<number> {
  const hash = createHash('sha256')
  let bodyBytes = 0
  let place = { file: '', end: 0 }
  let fault: string | undefined
  const frames = new FrameReader({
    onData(data, file, endOffset) {
      place = { file, end: (place.file === file ? place.end : 0) + data.length }
      if (place.end !== endOffset) fault ??= `a frame of ${file} ends at ${endOffset} and its data at ${place.end}`
      hash.update(data)
    },
    onEvent: (text) => void (fault ??= `unexpected frame ${text}`),
  })
  return new Promise((resolve, reject) => {
    const socket = new HttpSocket(port)
    const wrong = (text: string) => reject(new WrongContent(`${name}: ${text}`))
    socket.get(path, {
      onBody(part) {
        bodyBytes += part.length
        if (framed) frames.feed(part)
        else hash.update(part)
      },
      onEnd() {
        socket.close()
        if (fault !== undefined) wrong(fault)
        else if (hash.digest('hex') !== contentHash(bytes)) wrong('the hash is not that of what was written')
        else resolve(bodyBytes)
      },
      onFail: (error) => wrong(error.message),
    })
  })
}

if (import.meta.main) await alone(stream)
