/**
 * Following a log that is written and rotated at full speed: 10 MiB files of which three are kept. Compared with
 * a bare socket under the same load: the same writer rotates the same files while the same client receives
 * the same number of bytes from memory.
 */
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { writeFileSync } from 'node:fs'
import { logsPath, type RunningAgent, startAgent, TASK } from './support/agent.ts'
import { Helper, type Said } from './support/child.ts'
import { isContent, MiB } from './support/content.ts'
import { type Download, downloadRow } from './support/curl.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { Follower } from './support/follower.ts'
import { cpuSeconds, inTurn } from './support/measure.ts'
import type { Answer, Order } from './support/writer.ts'

const FILE_BYTES = 10 * MiB
const KEEP = 3
const LOST_MS = 60_000
const SETTLE_MS = 300

interface Run extends Download {
  readonly wireBytes: number
}

type Writer = Helper<Order, Answer>

export async function rotation(options: Options): Promise<Row[]> {
  const total = (options.quick ? 64 : 256) * MiB
  const agent = await startAgent()
  const writer: Writer = new Helper('writer')
  const memory = new Helper<never, Said>('bare/memory')
  try {
    const { port } = await memory.next()
    const rows: Row[] = []
    for (const framed of [true, false]) {
      const [ours, theirs]: [Run[], Run[]] = [[], []]
      await inTurn(options.rounds, [
        async () => void ours.push(await followed(agent, writer, { framed, total })),
        async () => {
          // Framed bodies are a third larger; the first side has reported the size.
          const wireBytes = ours.at(-1)?.wireBytes ?? (await followed(agent, writer, { framed, total })).wireBytes
          theirs.push(await fromMemory(agent, writer, { port, pid: memory.pid, total, wireBytes }))
        },
      ])
      const name = `follow ${framed ? 'framed' : 'plain'}, ${total / MiB} MiB rotated`
      const row = downloadRow(name, ours, { name: 'memory while rotating', runs: theirs })
      rows.push({ ...row, note: 'nothing lost' })
    }
    return rows
  } finally {
    await Promise.all([agent.stop(), writer.stop(), memory.stop()])
  }
}

function followed(agent: RunningAgent, writer: Writer, run: { framed: boolean; total: number }): Promise<Run> {
  const { framed, total } = run
  return measure(agent, writer, { total, pid: agent.pid, early: true }, (onPosition) => {
    const path = logsPath({ framed, follow: true })
    return new Follower({ port: agent.port, path, framed, total, check: isContent, onPosition })
  })
}

function fromMemory(
  agent: RunningAgent,
  writer: Writer,
  run: { port: number; pid: number; total: number; wireBytes: number },
): Promise<Run> {
  const { port, pid, total, wireBytes } = run
  return measure(agent, writer, { total, pid, early: false }, (onPosition) => {
    const scaled = (position: number) => onPosition((position / wireBytes) * total)
    const path = `/?bytes=${wireBytes}`
    // Bytes are only counted: the cost of checking them in the client belongs to the side of outpost, not to the limit.
    return new Follower({ port, path, framed: false, total: wireBytes, check: () => true, onPosition: scaled })
  })
}

async function measure(
  agent: RunningAgent,
  writer: Writer,
  { total, pid, early }: { total: number; pid: number; early: boolean },
  follow: (onPosition: (position: number) => void) => Follower,
): Promise<Run> {
  agent.site.removeLogs()
  writeFileSync(agent.site.logFile(0), '')
  let told = 0
  const onPosition = (position: number) => {
    if (position - told < MiB && position < total) return
    told = position
    writer.send({ kind: 'read', bytes: position })
  }
  const prefix = join(agent.site.logs, `${TASK}.stdout`)
  const rotate: Order = { kind: 'rotate', prefix, total, fileBytes: FILE_BYTES, keep: KEEP }
  let follower = early ? follow(onPosition) : undefined
  await follower?.ready
  await pause(SETTLE_MS)
  const cpuBefore = cpuSeconds(pid)
  writer.send(rotate)
  // Sending from memory does not wait for the writer: both start together.
  follower ??= follow(onPosition)
  const [beganMs = Number.NaN, endedMs = Number.NaN] = await writer.next()
  await Promise.race([follower.done, pause(LOST_MS)])
  const cpu = cpuSeconds(pid) - cpuBefore
  follower.close()
  if (follower.fault !== undefined) throw new WrongContent(`rotation: ${follower.fault}`)
  if (!follower.complete) throw new WrongContent(`rotation: only ${follower.position} bytes received`)
  return {
    megabytesPerSecond: total / 1e3 / (Math.max(follower.lastArrivalMs, endedMs) - beganMs),
    cpuSecondsPerGigabyte: cpu / (total / 1e9),
    wireBytes: follower.wireBytes,
  }
}

if (import.meta.main) await alone(rotation)
