/**
 * Small responses at full speed: metadata, statistics of the host and of an allocation, and file attributes, compared
 * with Node's HTTP server that returns the same headers and bytes from memory.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ALLOC_ID, FS, type RunningAgent, startAgent, TASK } from './support/agent.ts'
import type { CannedAnswer } from './support/bare/http.ts'
import { Helper, type Said } from './support/child.ts'
import { alone, type Options, type Row } from './support/figure.ts'
import { fetchWhole } from './support/http-socket.ts'
import { type Load, load, loadRow, type Request } from './support/load.ts'
import { inTurn } from './support/measure.ts'

interface Case {
  readonly name: string
  readonly path: string
  /** A key that its JSON must have. */
  readonly key: string
}

const CASES: readonly Case[] = [
  { name: 'metadata', path: '/v1/client/metadata', key: 'Meta' },
  { name: 'host statistics', path: '/v1/client/stats', key: 'Memory' },
  { name: 'allocation statistics', path: `/v1/client/allocation/${ALLOC_ID}/stats`, key: 'ResourceUsage' },
  { name: 'file attributes, path=alloc', path: `${FS}/stat/${ALLOC_ID}?path=alloc`, key: 'IsDir' },
  { name: 'file attributes, 3 levels deep', path: `${FS}/stat/${ALLOC_ID}?path=${TASK}/local/deep/file`, key: 'IsDir' },
]

export async function smallGets(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  const bare = new Helper<CannedAnswer, Said>('bare/http')
  try {
    const { port } = await bare.next()
    writeFileSync(join(agent.site.allocation, TASK, 'local/deep/file'), 'content\n')
    const rows: Row[] = []
    for (const one of CASES) rows.push(await measure(agent, { bare, port }, one, options))
    return rows
  } finally {
    await Promise.all([agent.stop(), bare.stop()])
  }
}

/** Statistics change every second: every body that differs from the previous one is parsed and checked. */
function requestOf({ path, key }: Case): Request {
  let last = Buffer.alloc(0)
  return {
    path,
    fault(status, body) {
      if (status !== 200) return `status ${status}`
      if (body.equals(last)) return undefined
      last = Buffer.from(body)
      try {
        const value: unknown = JSON.parse(last.toString())
        return typeof value === 'object' && value !== null && key in value ? undefined : `no ${key} in the answer`
      } catch {
        return 'the answer is not JSON'
      }
    },
  }
}

async function measure(
  agent: RunningAgent,
  peer: { bare: Helper<CannedAnswer, Said>; port: number },
  one: Case,
  options: Options,
): Promise<Row> {
  const { head, body } = await fetchWhole(agent.port, one.path)
  // Node adds these itself, also to the responses of outpost.
  const own = /^(date|connection|keep-alive|transfer-encoding)$/i
  const headers = head
    .split('\r\n')
    .slice(1)
    .map((text) => text.split(/: */, 2))
  const copied = headers.filter(([name = '']) => !own.test(name)).flat()
  peer.bare.send({ path: one.path, headers: copied, base64: body.toString('base64') })
  await peer.bare.next()
  const request = requestOf(one)
  const durationMs = options.quick ? 500 : 2000
  const [ours, theirs]: [Load[], Load[]] = [[], []]
  const from = { port: agent.port, pid: agent.pid, next: () => request }
  const peerFrom = { port: peer.port, pid: peer.bare.pid, next: () => request }
  for (const side of [from, peerFrom]) await load({ ...side, durationMs: durationMs / 2 })
  await inTurn(options.rounds, [
    async () => void ours.push(await load({ ...from, durationMs })),
    async () => void theirs.push(await load({ ...peerFrom, durationMs })),
  ])
  return {
    ...loadRow(`GET ${one.name}`, ours, { name: 'bare node:http', loads: theirs }),
    note: `${body.length} bytes`,
  }
}

if (import.meta.main) await alone(smallGets)
