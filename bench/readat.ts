/**
 * Many readers of parts of a file: 64 KiB at random offsets over 16 connections, compared with Range requests to nginx, and with a
 * bare Node HTTP server that returns the same number of bytes from memory.
 */
import { join } from 'node:path'
import { ALLOC_ID, FS, startAgent } from './support/agent.ts'
import { Helper, type Said } from './support/child.ts'
import type { CannedAnswer } from './support/bare/http.ts'
import { BLOCK_BYTES, isContent, MiB, writeContent } from './support/content.ts'
import { alone, type Options, type Row } from './support/figure.ts'
import { type Load, load, loadRow, type Request } from './support/load.ts'
import { inTurn } from './support/measure.ts'
import { startNginx } from './support/nginx.ts'

const FILE_BYTES = 256 * MiB
const PART_BYTES = 65_536

let random = 7

/** Not on a block boundary, so that all parts touch the same number of pages. */
function nextOffset(): number {
  random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0
  return (random % (FILE_BYTES / BLOCK_BYTES - 1)) * BLOCK_BYTES + 4096
}

function part(path: string, offset: number, status: number, header?: string): Request {
  return {
    path,
    ...(header === undefined ? {} : { header }),
    fault(code, body) {
      if (code !== status) return `status ${code}`
      if (body.length !== PART_BYTES) return `${body.length} bytes`
      return isContent(body, offset) ? undefined : `wrong bytes at ${offset}`
    },
  }
}

function ours(): Request {
  const offset = nextOffset()
  return part(`${FS}/readat/${ALLOC_ID}?path=alloc/data/big&offset=${offset}&limit=${PART_BYTES}`, offset, 200)
}

function ranged(): Request {
  const offset = nextOffset()
  return part('/alloc/data/big', offset, 206, `Range: bytes=${offset}-${offset + PART_BYTES - 1}\r\n`)
}

/** The bare server always returns the same bytes: those at offset 0 of a block that is not in the file. */
function canned(): Request {
  return { path: '/', fault: (status, body) => (status === 200 && body.length === PART_BYTES ? undefined : 'short') }
}

interface Side {
  readonly name: string
  readonly port: number
  readonly pid: number
  readonly next: () => Request
  readonly loads: Load[]
}

export async function readat(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  writeContent(join(agent.site.allocation, 'alloc/data/big'), FILE_BYTES)
  const nginx = await startNginx(options, agent.site.allocation, '/alloc.json')
  const bare = new Helper<CannedAnswer, Said>('bare/http')
  try {
    const { port } = await bare.next()
    bare.send({ path: '/', headers: [], base64: Buffer.alloc(PART_BYTES, 'x').toString('base64') })
    await bare.next()
    const sides: Side[] = [
      { name: 'outpost', port: agent.port, pid: agent.pid, next: ours, loads: [] },
      ...(nginx ? [{ name: 'nginx sendfile', port: nginx.port, pid: nginx.pid, next: ranged, loads: [] }] : []),
      { name: 'node:http from memory', port, pid: bare.pid, next: canned, loads: [] },
    ]
    return await measure(sides, options)
  } finally {
    await Promise.all([agent.stop(), nginx?.stop(), bare.stop()])
  }
}

async function measure(sides: Side[], options: Options): Promise<Row[]> {
  const durationMs = options.quick ? 500 : 3000
  for (const { port, pid, next } of sides) await load({ port, pid, next, durationMs: durationMs / 2 })
  const rounds = sides.map(({ port, pid, next, loads }) => {
    return async () => void loads.push(await load({ port, pid, next, durationMs }))
  })
  await inTurn(options.rounds, rounds)
  const [own, ...peers] = sides
  return peers.map((peer) => loadRow('readat, 64 KiB, 16 connections', own?.loads ?? [], peer))
}

if (import.meta.main) await alone(readat)
