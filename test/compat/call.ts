/** Sends one recorded request as it was sent, and notes everything about the answer. */
import { request } from 'node:http'
import { heldUpMs, runningMs } from '../helpers/running-clock.ts'
import type { RecordedRow } from './recording.ts'

export interface Chunk {
  readonly atMs: number
  readonly bytes: Buffer
}

export interface Answer {
  readonly status: number
  readonly headers: readonly (readonly [string, string])[]
  readonly body: Buffer
  readonly chunks: readonly Chunk[]
  readonly headAtMs: number
  /** For how long this process, server and client, did not run meanwhile. */
  readonly heldUpMs: number
  /** `open`: we hung up. `broken`: the connection broke before the end. */
  readonly end: 'ended' | 'open' | 'broken'
}

/** Our hanging up is moved away from a whole second, where a heartbeat would be as likely to come as not. */
const CLEAR_OF_SECOND_MS = 300
const SILENT_MS = 20_000

export function hangUpAfter(openMs: number): number {
  return openMs % 1000 < 100 ? openMs - CLEAR_OF_SECOND_MS : openMs
}

/**
 * Sends it; hangs up when this process has run for `openMs` after the head, where that is given. Rejects when no answer comes at all. `onHead` is told of
 * the head, from which on the caller may change what is followed.
 */
export function send(
  url: string,
  row: RecordedRow,
  openMs = row.answer?.openMs,
  onHead: () => void = () => undefined,
): Promise<Answer> {
  const { hostname, port } = new URL(url)
  const startMs = performance.now()
  const heldUpBeforeMs = heldUpMs()
  return new Promise((resolve, reject) => {
    const outgoing = request(
      { hostname, port, method: row.method, path: row.path, headers: { ...row.headers }, agent: false },
      (incoming) => {
        const headAtMs = performance.now() - startMs
        onHead()
        const chunks: Chunk[] = []
        const finish = (end: Answer['end']) => {
          clearTimeout(timer)
          const body = Buffer.concat(chunks.map(({ bytes }) => bytes))
          const headers = pairs(incoming.rawHeaders)
          const heldMs = heldUpMs() - heldUpBeforeMs
          resolve({ status: incoming.statusCode ?? 0, headers, body, chunks, headAtMs, heldUpMs: heldMs, end })
          if (end !== 'ended') outgoing.destroy()
        }
        const leftMs = openMs === undefined ? SILENT_MS : hangUpAfter(openMs)
        const endMs = runningMs() + leftMs
        const hangUp = () => {
          if (runningMs() >= endMs) finish('open')
          else timer = setTimeout(hangUp, endMs - runningMs())
        }
        let timer = setTimeout(hangUp, leftMs)
        incoming.on('data', (bytes: Buffer) => chunks.push({ atMs: performance.now() - startMs, bytes }))
        incoming.on('end', () => finish('ended'))
        incoming.on('error', () => finish('broken'))
      },
    )
    outgoing.on('error', reject)
    outgoing.setTimeout(SILENT_MS, () => outgoing.destroy(new Error(`no answer to ${row.name}`)))
    // An empty body was sent with chunked encoding: a first chunk that is also the last.
    if (row.body === '') outgoing.setHeader('Transfer-Encoding', 'chunked')
    outgoing.end(row.body === '' ? undefined : row.body)
  })
}

function pairs(raw: readonly string[]): [string, string][] {
  const found: [string, string][] = []
  for (let at = 0; at + 1 < raw.length; at += 2) found.push([raw[at] ?? '', raw[at + 1] ?? ''])
  return found
}
