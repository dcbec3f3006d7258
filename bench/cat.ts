/**
 * A large file from the page cache: `fs/cat` compared with nginx with sendfile, or with the bare loopback if
 * nginx is missing; and the memory that the agent needs for it.
 */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { type RunningAgent, ALLOC_ID, FS, startAgent } from './support/agent.ts'
import { Helper, type Said } from './support/child.ts'
import { contentHash, MiB, writeContent } from './support/content.ts'
import { type Download, download, downloadRow } from './support/curl.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { HttpSocket } from './support/http-socket.ts'
import { inTurn, residentMiB, watchMemory } from './support/measure.ts'
import { startNginx } from './support/nginx.ts'

/** Not a round number of anything, so that the end of the file is a short read. */
const ODD_BYTES = 1000

interface Peer {
  readonly name: string
  readonly from: { readonly port: number; readonly pid: number; readonly path: string }
}

export async function cat(options: Options): Promise<Row[]> {
  const bytes = (options.quick ? 64 : 512) * MiB + ODD_BYTES
  const agent = await startAgent()
  const nginx = await startNginx(options, agent.site.allocation, '/alloc.json')
  const memory = new Helper<never, Said>('bare/memory')
  const { port } = await memory.next()
  writeContent(join(agent.site.allocation, 'alloc/data/big'), bytes)
  const peers: Peer[] = [{ name: 'raw loopback', from: { port, pid: memory.pid, path: `/?bytes=${bytes}` } }]
  if (nginx) {
    peers.unshift({ name: 'nginx sendfile', from: { ...nginx, path: '/alloc/data/big' } })
  }
  try {
    return await measure(agent, peers, bytes, options.rounds)
  } finally {
    await Promise.all([agent.stop(), nginx?.stop(), memory.stop()])
  }
}

async function measure(agent: RunningAgent, peers: Peer[], bytes: number, rounds: number): Promise<Row[]> {
  const { port, pid } = agent
  const path = `${FS}/cat/${ALLOC_ID}?path=alloc/data/big`
  const ours: Download[] = []
  const theirs = new Map<string, Download[]>(peers.map(({ name }) => [name, []]))
  await verify(port, path, bytes)
  const residentBefore = residentMiB(pid)
  const memory = watchMemory(pid)
  await inTurn(rounds, [
    async () => void ours.push(await download({ port, pid, path, bodyBytes: bytes })),
    ...peers.map(
      ({ name, from }) =>
        async () =>
          void theirs.get(name)?.push(await download({ ...from, bodyBytes: bytes })),
    ),
  ])
  const resident = memory.end()
  const megabytes = Math.round(bytes / MiB)
  return [
    ...peers.map(({ name }) => downloadRow(`cat, ${megabytes} MiB`, ours, { name, runs: theirs.get(name) ?? [] })),
    {
      figure: 'cat, peak memory',
      unit: 'MiB',
      ours: [resident],
      peer: { name: 'before', runs: [residentBefore] },
    },
  ]
}

/** One download that is checked by hash. It also warms up the server. */
function verify(port: number, path: string, bytes: number): Promise<void> {
  const hash = createHash('sha256')
  return new Promise((resolve, reject) => {
    const socket = new HttpSocket(port)
    socket.get(path, {
      onBody: (part) => void hash.update(part),
      onEnd() {
        socket.close()
        if (hash.digest('hex') === contentHash(bytes)) resolve()
        else reject(new WrongContent('cat: the hash of what was downloaded is not that of the file'))
      },
      onFail: (error) => reject(new WrongContent(`cat: ${error.message}`)),
    })
  })
}

if (import.meta.main) await alone(cat)
