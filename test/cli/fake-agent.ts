/**
 * A small HTTP server in the place of an agent, for what a real one does not do on demand: breaking in the middle of a
 * frame, falling silent, refusing, not knowing cursors.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'

export const ALLOC_ID = '6f1c0b9e-2f0a-4a51-9d0c-0000000000aa'

export interface Asked {
  readonly path: string
  readonly query: URLSearchParams
  readonly request: IncomingMessage
}

export interface FakeAgent {
  readonly url: string
  readonly port: number
  /** Every request so far. */
  readonly asked: Asked[]
  /** Stops listening and breaks every connection; `again` listens on the same port. */
  stop(): Promise<void>
  again(): Promise<void>
}

/** `answer` gets the number of the request, from 0. */
export async function fakeAgent(
  t: TestContext,
  answer: (asked: Asked, response: ServerResponse, count: number) => void,
): Promise<FakeAgent> {
  const asked: Asked[] = []
  let server: Server | undefined
  const listen = async (port: number) => {
    const listening = createServer((request, response) => {
      const url = new URL(request.url ?? '/', 'http://agent')
      const one = { path: url.pathname, query: url.searchParams, request }
      asked.push(one)
      answer(one, response, asked.length - 1)
    })
    await new Promise<void>((done) => listening.listen(port, '127.0.0.1', done))
    server = listening
    return (listening.address() as AddressInfo).port
  }
  const stop = async () => {
    const stopping = server
    if (!stopping) return
    server = undefined
    const closed = new Promise((done) => stopping.close(done))
    stopping.closeAllConnections()
    await closed
  }
  const port = await listen(0)
  t.after(stop)
  return { url: `http://127.0.0.1:${port}`, port, asked, stop, again: async () => void (await listen(port)) }
}

/** One frame; a cursor and a file only where they are given. */
export function frame(
  data: string | Buffer,
  more: { File?: string; Cursor?: string; FileEvent?: string; AllocID?: string } = {},
): string {
  const bytes = Buffer.from(data)
  const { Cursor, ...rest } = more
  return JSON.stringify({
    ...(bytes.length === 0 ? {} : { Data: bytes.toString('base64') }),
    ...rest,
    Offset: bytes.length,
    ...(Cursor === undefined ? {} : { Cursor }),
  })
}

/** Heartbeats until the caller leaves. */
export function beat(response: ServerResponse): void {
  const timer = setInterval(() => response.write('{}'), 200)
  response.on('close', () => clearInterval(timer))
}
